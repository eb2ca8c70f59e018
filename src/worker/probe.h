// SPDX-License-Identifier: Apache-2.0
/* probe.h - what only looking tells of a configuration: the modes of its C tasks, and whether the
 * programs of its exec tasks are there. A plugin is looked at in a process of its own. */
#ifndef WORKER_PROBE_H
#define WORKER_PROBE_H

#include <stddef.h>

#include "conf/conf.h"

/* Set the mode of every C task. Starts no process when there is none.
 * returns OK | CONFIG: what is wrong with a plugin, "FILE:LINE: ..." | NOMEM IO: no process */
enum pawl_rc probe_modes(struct conf *conf, struct pawl_error *e) PAWL_MUST_USE;
/* The other side: load the plugins and say on descriptor 3 what was found. */
enum { PROBE_FD = 3 };
enum pawl_rc probe_run(struct conf *conf, struct pawl_error *e) PAWL_MUST_USE;

/* Call fn for every exec task whose program is not there, or not executable. */
void probe_programs(const struct conf *conf, void (*fn)(void *ctx, const char *why), void *ctx);

#endif

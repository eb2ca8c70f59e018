// SPDX-License-Identifier: Apache-2.0
/* c_plugin.h - load the plugin of a C task and find its handler in it. Only in a process that may
 * die of it: a runner, `pawl run`, the probe. Never in a supervisor.
 */
#ifndef HANDLER_C_PLUGIN_H
#define HANDLER_C_PLUGIN_H

#include "conf/conf.h"
#include "pawl.h"

/* Load, look up, check, and set the task's mode by what was found. *out lives as long as the
 * process: a plugin is never unloaded (it may have threads, or be in the middle of something).
 * returns OK | CONFIG: "FILE:LINE: c = ...: what, and what to do" */
enum pawl_rc c_plugin_load(const struct conf *conf, struct conf_task *t,
                           const struct pawl_handler **out, struct pawl_error *e) PAWL_MUST_USE;
/* The same for every C task; out: parallel to conf->tasks, NULL for the others. */
enum pawl_rc c_plugins_load(struct conf *conf, const struct pawl_handler **out,
                            struct pawl_error *e) PAWL_MUST_USE;

#endif

// SPDX-License-Identifier: Apache-2.0
/* fail.h - named crash points. PAWL_FAILPOINT="name=action[:skip[:times]],..." arms them.
 *
 * Actions: kill (SIGKILL to this process), killgroup (to the parent, then this process), exit
 * (_exit 9), stop (SIGSTOP), error (fail_point returns true: the caller fails as if the step had
 * failed; errno = EIO), enospc (as error, errno = ENOSPC), hang (sleep until killed). skip: how
 * many passes to let through first; times: how many passes then act (default: all).
 * Unarmed, a point costs one load and one branch. Every point is listed in fail.c; an unknown
 * name in the variable is refused at start, so that no test passes because of a typing error.
 */
#ifndef BASE_FAIL_H
#define BASE_FAIL_H

#include <stdbool.h>
#include "pawl.h"

extern bool fail_armed; /* set once, by fail_setup */
enum pawl_rc fail_setup(struct pawl_error *e) PAWL_MUST_USE;
bool fail_hit(const char *name);
#define fail_point(name) (__builtin_expect(fail_armed, 0) && fail_hit(name))
const char *const *fail_names(void); /* NULL-terminated: all points, for `pawl debug failpoints` */

#endif

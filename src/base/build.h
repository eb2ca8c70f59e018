// SPDX-License-Identifier: Apache-2.0
/* build.h - which commit this is: on every attempt, so that a fixed bug is told from an old one. */
#ifndef BASE_BUILD_H
#define BASE_BUILD_H

const char *pawl_build(void); /* 12 hex digits, or "unknown"; static */

#endif

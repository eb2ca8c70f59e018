// SPDX-License-Identifier: Apache-2.0
/* build.c - the only file that a new commit makes compile anew. */
#include "base/build.h"
#if __has_include("build_id.h")
#include "build_id.h" /* made by the build from tool/build_id.h.in */
#else
#define PAWL_BUILD "unknown"
#endif

const char *pawl_build(void)
{
    return PAWL_BUILD;
}

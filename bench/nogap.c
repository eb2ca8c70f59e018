// SPDX-License-Identifier: Apache-2.0
/* nogap.c - pawl without the gaps it leaves for foreign writers: to measure what the gaps cost.
 * Never for use: it starves everybody else who writes the file. */
#define SIDE_NO_GAPS 1
#define PAWL_BUILD "bench-nogap"
#include "../src/store/sqlite/sl_side.c" /* ours comes before the library's */
#include "../src/main.c"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test-handlers: a program that tests a handler: a store in memory, a clock that the test sets.
only_sqlite="the store lies in memory"
. "$(dirname "$0")/../lib.sh"

built test-handlers     # cc -o test-handlers test-handlers.c $(pkg-config --cflags --libs pawl)
run ./test-handlers

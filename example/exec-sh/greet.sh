#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# greet.sh - args come on standard input, facts about the job in PAWL_... variables, and the result
# goes to descriptor $PAWL_REPLY_FD (always 3). Standard output is the program's own.
set -eu
args=$(cat)
name=$(printf '%s' "$args" | sed -n 's/^{"name":"\([A-Za-z]*\)"}$/\1/p')
if [ -z "$name" ]; then
    echo "greet.sh: cannot greet $args" >&2
    exit 65                             # EX_DATAERR: this will never work
fi
if [ "$PAWL_ATTEMPT" -lt 2 ]; then
    echo "greet.sh: the greeting office is closed, come again" >&2
    exit 75                             # EX_TEMPFAIL: this may work later
fi
echo "$PAWL_TASK: job $PAWL_JOB_ID with key ${PAWL_KEY:-none}, attempt $PAWL_ATTEMPT"
printf '{"done":{"result":"%s, %s"}}\n' "$GREETING" "$name" >&3

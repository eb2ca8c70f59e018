#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ping.sh - counts its starts in starts.txt, then does as the args say.
args=$(cat)
echo start >>starts.txt
case $args in
    *fail*) echo "ping.sh: nobody listens" >&2; exit 75 ;;
    *die*) kill -KILL $$ ;;
esac

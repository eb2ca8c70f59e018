# SPDX-License-Identifier: Apache-2.0
# lib.sh - what every example's run.sh begins with: a clean temporary directory that holds a copy of
# the example, and a few words. Sourced as: . "$(dirname "$0")/../lib.sh"
#
#   run COMMAND...   show the command as a transcript would, run it, show an exit code that is not 0
#   pawl ...         the binary: $PAWL_BIN, else pawl from PATH
#   work             a worker that ends when nothing is left to do (its log goes to work.log)
#   sql STATEMENT    one SQL statement on shop.db; rows as a|b|c
#   note TEXT        a line between the commands
#   built NAME       the program NAME, compiled from NAME.c with libpawl: the one of the build, or
#                    made now with the installed library

set -eu
here=$(cd "$(dirname "$0")" && pwd)
pawl_bin=$(command -v "${PAWL_BIN:-pawl}") || {
    echo "no pawl in PATH; set PAWL_BIN to the binary" >&2
    exit 1
}
case $pawl_bin in /*) ;; *) pawl_bin=$PWD/$pawl_bin ;; esac
unset PAWL_DB
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
cp -R "$here/." "$scratch"
cd "$scratch"

pawl() { "$pawl_bin" "$@"; }
work() { pawl work --until-empty 2>>work.log; }
sql() { python3 "$here/../sql.py" shop.db "$@"; }
built() {
    if cp "$(dirname "$pawl_bin")/example/$1" . 2>/dev/null; then return; fi
    # shellcheck disable=SC2046 # a list of words
    "${CC:-cc}" -o "$1" "$1.c" $(pkg-config --cflags --libs pawl)
}
note() { printf '\n# %s\n' "$*"; }

run() {
    printf '$'
    for word in "$@"; do
        case $word in
            *\'*) printf ' "%s"' "$(printf %s "$word" | sed 's/["\\$`]/\\&/g')" ;;
            *[!A-Za-z0-9_.,:/=-]* | '') printf " '%s'" "$word" ;;
            *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
    "$@" 2>&1 || printf '(exit %d)\n' $?
}

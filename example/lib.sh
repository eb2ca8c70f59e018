# SPDX-License-Identifier: Apache-2.0
# lib.sh - what every example's run.sh begins with: a clean temporary directory that holds a copy of
# the example, and a few words. Sourced as: . "$(dirname "$0")/../lib.sh"
#
# The engine is SQLite, in that directory; or PostgreSQL, when $PAWL_DB is a postgresql://... URL:
# then in a database made on that server for this run, and dropped at the end. `./run postgres FILE`
# lends a server to who has none. Where the engines have other words, run.sh says $jobs, $attempts,
# and on SQLITE-WORDS POSTGRES-WORDS; an example of one engine alone says only_sqlite=WHY, or
# only_postgres=WHY, first.
#
#   run COMMAND...   show the command as a transcript would, run it, show an exit code that is not 0
#   pawl ...         the binary: $PAWL_BIN, else pawl from PATH
#   work             a worker that ends when nothing is left to do (its log goes to work.log)
#   sql STATEMENT... SQL statements in one transaction, on the example's database; rows as a|b|c
#   on A B           prints A on SQLite, B on PostgreSQL
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
server=
case ${PAWL_DB:-} in
    postgresql://* | postgres://*) server=$PAWL_DB ;;
esac
unset PAWL_DB
on() { if [ -z "$server" ]; then echo "$1"; else echo "$2"; fi; }
on_server() { psql -X -q -At -v ON_ERROR_STOP=1 -v SHOW_CONTEXT=never "$@"; }
if [ -n "$server" ] && [ -n "${only_sqlite:-}" ]; then
    echo "$(basename "$here"): only on SQLite: $only_sqlite" >&2
    exit 2
fi
if [ -z "$server" ] && [ -n "${only_postgres:-}" ]; then
    echo "$(basename "$here"): only on PostgreSQL: $only_postgres" >&2
    exit 2
fi

scratch=$(mktemp -d)
database=
leave() {
    [ -z "$database" ] || on_server -d "$server" -c "DROP DATABASE $database WITH (FORCE)"
    rm -rf "$scratch"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
cp -R "$here/." "$scratch"
cd "$scratch"
if [ -n "$server" ]; then
    on_server -d "$server" -c "CREATE DATABASE pawl_example_$$"
    database=pawl_example_$$
    case $server in
        *\?*) PAWL_DB="$server&dbname=$database" ;;
        *) PAWL_DB="$server?dbname=$database" ;;
    esac
    export PAWL_DB # it wins over the db of pawl.conf
fi
jobs=$(on pawl_jobs pawl.jobs) attempts=$(on pawl_attempts pawl.attempts)
pawl() { "$pawl_bin" "$@"; }
work() { pawl work --until-empty 2>>work.log; }
sql() {
    if [ -z "$server" ]; then
        python3 "$here/../sql.py" shop.db "$@"
        return
    fi
    for statement in "$@"; do
        set -- "$@" -c "$statement"
        shift
    done
    on_server -1 -d "$PAWL_DB" "$@"
}
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

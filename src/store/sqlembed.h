// SPDX-License-Identifier: Apache-2.0
/* sqlembed.h - the SQL files of sql/sqlite and sql/postgres, carried by the binary.
 *
 * Keeps: sorted by name, so that migrations stand in their order; {NULL, NULL} ends a table.
 * See:   tool/embed, which makes the C files at build time.
 */
#ifndef STORE_SQLEMBED_H
#define STORE_SQLEMBED_H

#include <stdbool.h>
#include <stddef.h>

struct sql_file {
    const char *name; /* "0001_init.sql", without a folder */
    const char *text; /* the whole file, UTF-8 */
};
extern const struct sql_file sql_sqlite_files[], sql_postgres_files[];
extern const size_t sql_sqlite_files_n, sql_postgres_files_n;

bool sql_is_breaking(const char *text);  /* older binaries must not use a store that has it */
int sql_number(const char *name);        /* "0001_init.sql" -> 1; "views.sql" -> 0: made anew */
int sql_newest(const struct sql_file *files, size_t n);

#endif

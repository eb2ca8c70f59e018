// SPDX-License-Identifier: Apache-2.0
/* sql_embed.h - the SQL files of sql/sqlite, carried by the binary.
 *
 * Keeps: sorted by name, so that migrations stand in their order; {NULL, NULL} ends the table.
 * See:   tool/embed, which makes the C file at build time.
 */
#ifndef STORE_SQLITE_SQL_EMBED_H
#define STORE_SQLITE_SQL_EMBED_H

#include <stddef.h>

struct sql_file {
    const char *name; /* "0001_init.sql", without a folder */
    const char *text; /* the whole file, UTF-8 */
};
extern const struct sql_file sql_sqlite_files[];
extern const size_t sql_sqlite_files_n;

#endif

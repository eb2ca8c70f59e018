// SPDX-License-Identifier: Apache-2.0
/* test_sqlite_log.c - a log that a reader pins: a checkpoint waits for readers once it has grown,
 * and who has waited in vain does not do so at every commit. */
#include <sqlite3.h>
#include <string.h>
#include "lib/fx.h"
#include "store/sqlite/sl.h"

enum { FIRM = 4000, BIG_BYTES = 900000 };

static void put_big(struct fx *f)
{
    char *args = malloc(BIG_BYTES + 3);

    ck_assert_ptr_nonnull(args);
    memset(args, 'x', BIG_BYTES + 2);
    args[0] = args[BIG_BYTES + 1] = '"';
    args[BIG_BYTES + 2] = '\0';
    (void)fx_put(f, "mail", args);
    free(args);
}

START_TEST(sqlite_who_waited_in_vain_for_a_reader_does_not_wait_at_every_commit)
{
    sqlite3 *reader = NULL;
    struct fx f;

    fx_begin(&f, 0);
    fx_task(&f, "mail");
    const struct sqlite *sl = sl_of(f.st);
    ck_assert_int_eq(sqlite3_open(f.url + strlen("sqlite:"), &reader), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM pawl_x_job", NULL, NULL,
                                  NULL), SQLITE_OK);
    for (int i = 0; i < 40 && sl->wal_frames < FIRM; i++)
        put_big(&f);
    ck_assert_int_ge(sl->wal_frames, FIRM);
    put_big(&f); /* whatever came before: this one found it grown */
    const int next = sl->ckpt_at;
    ck_assert_int_gt(next, sl->wal_frames);
    (void)fx_put(&f, "mail", "{}");
    ck_assert_int_eq(sl->ckpt_at, next); /* it did not try */

    ck_assert_int_eq(sqlite3_close(reader), SQLITE_OK);
    for (int i = 0; i < 40 && sl->wal_frames > FIRM; i++)
        put_big(&f);
    ck_assert_int_lt(sl->wal_frames, FIRM); /* without the reader it is begun anew */
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, sqlite_who_waited_in_vain_for_a_reader_does_not_wait_at_every_commit);
}

int main(void)
{
    return ut_main("sqlite_log", add, 60);
}

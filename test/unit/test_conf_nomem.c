// SPDX-License-Identifier: Apache-2.0
/* test_conf_nomem.c - wherever memory runs out, reading a config says so and gives nothing. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/os.h"
#include "conf/conf.h"
#include "lib/nomem.h"
#include "lib/ut.h"

static const char text[] =
    "[pawl]\ndb = a.db\non_connect = PRAGMA cache_size = 1\n"
    "[task a]\nsql = SELECT :a,\n  :b\nsql = SELECT 2\noptional = a b\n"
    "[task b]\nexec = 'true' x\nenv.A = 1\nenv.B = 2\n";

START_TEST(test_conf_out_of_memory_is_told)
{
    char path[] = "/tmp/pawl-conf-nomem-XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);
    long k = 0;

    ck_assert(fd >= 0 && os_write_all(fd, text, strlen(text)));
    close(fd);
    for (;; k++) {
        struct pawl_error e = {0};
        struct conf *c = NULL;
        nomem_arm(k);
        enum pawl_rc rc = conf_read(path, &c, &e);
        bool hit = nomem_disarm();
        if (!hit) {
            ck_assert_msg(rc == PAWL_OK, "%s", e.msg);
            conf_free(&c);
            break;
        }
        ck_assert_msg(rc == PAWL_NOMEM && c == NULL, "allocation %ld: %d %s", k, (int)rc, e.msg);
        ck_assert(e.rc == PAWL_NOMEM && e.msg[0] != '\0');
    }
    ck_assert(!nomem_works() || k > 3); /* or no allocation was seen */
    unlink(path);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, test_conf_out_of_memory_is_told);
}

int main(void)
{
    return ut_main("conf_nomem", add, 60);
}

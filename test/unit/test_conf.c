// SPDX-License-Identifier: Apache-2.0
/* test_conf.c - a good pawl.conf becomes the right structs; every bad one is refused with its line,
 * its value and what to do. See doc/config.md. */
#include "conf/conf.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/os.h"
#include "core/rules.h"
#include "lib/ut.h"

static char dir[64];
static char path[128];

static void put_file(const char *file, const char *text, size_t n)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert(fd >= 0 && os_write_all(fd, text, n));
    close(fd);
}

static void make_dir(void)
{
    struct buf b = {0};
    buf_printf(&b, "/tmp/pawl-conf-XXXXXX");
    ck_assert_uint_lt(b.n, sizeof dir);
    for (size_t i = 0; i <= b.n; i++) dir[i] = b.data[i];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    buf_clear(&b);
    buf_printf(&b, "%s/t.conf", dir);
    for (size_t i = 0; i <= b.n; i++) path[i] = b.data[i];
    buf_free(&b);
}

static void drop_dir(void)
{
    unlink(path);
    ck_assert_int_eq(rmdir(dir), 0);
}

static enum pawl_rc read_text(const char *text, struct conf **c, struct pawl_error *e)
{
    put_file(path, text, strlen(text));
    return conf_read(path, c, e);
}

static const char full[] =
    "# a shop\n"
    "[pawl]\n"
    "db = sqlite:shop.db\n"
    "concurrency = 16\n"
    "grace = 10s\n"
    "lease=1m\n"
    "on_connect = PRAGMA cache_size = -65536;\n"
    "on_connect =\n"
    "    CREATE TEMP TABLE x(a)\n"
    "accept_wal_risk = yes\n"
    "\n"
    "; an sql task\n"
    "[task apply_product_event]\n"
    "sql = INSERT INTO product(sku, price) VALUES (:sku, :price)\n"
    "      ON CONFLICT(sku) DO UPDATE SET note = ':no # no',\n"
    "# a comment between the pieces\n"
    "\tprice = excluded.price   \n"
    "      ;\n"
    "sql = SELECT :args, :job_id, :note\n"
    "optional = note price\n"
    "entity = :sku\n"
    "version = :version\n"
    "zero_rows = stale\n"
    "max_retries = 3\n"
    "backoff = 2s..1m\n"
    "hard_limit = 10s\n"
    "soft_limit = 9s\n"
    "priority = -5\n"
    "queue = feed\n"
    "\n"
    "[task  resize.image-2 ]\n"
    "exec = ./resize.sh --q 'a b'\n"
    "       \"c\"\n"
    "ack = early\n"
    "permanent = 2 40-42\n"
    "env.EMPTY =\n"
    "env.TWO = a = b # c\n"
    "          more\n";

static void check_full(const struct conf *c)
{
    const struct conf_task *t = c->tasks;

    ck_assert_int_eq(c->concurrency, 16);
    ck_assert_int_eq(c->grace_us, 10000000);
    ck_assert_int_eq(c->lease_us, 60000000);
    ck_assert(c->accept_wal_risk);
    ck_assert_uint_eq(c->on_connect_n, 2);
    ck_assert_str_eq(c->on_connect[0], "PRAGMA cache_size = -65536");
    ck_assert_str_eq(c->on_connect[1], "CREATE TEMP TABLE x(a)");
    ck_assert_uint_eq(c->tasks_n, 2);
    ck_assert_str_eq(t->name, "apply_product_event");
    ck_assert_int_eq(t->line, 13);
    ck_assert(t->kind == HANDLER_SQL && t->argv == NULL && t->env_n == 0);
    ck_assert_uint_eq(t->sql_n, 2);
    ck_assert_str_eq(t->sql[0].text, "INSERT INTO product(sku, price) VALUES (:sku, :price)\n"
                                     "ON CONFLICT(sku) DO UPDATE SET note = ':no # no',\n"
                                     "price = excluded.price");
    ck_assert_int_eq(t->sql[0].line, 14);
    ck_assert_uint_eq(t->sql[0].scan.params_n, 2);
    ck_assert_str_eq(t->sql[1].scan.params[2].name, "note");
    ck_assert_int_eq(t->sql[1].line, 19);
    ck_assert(t->sql[1].scan.returns_rows && !t->sql[0].scan.returns_rows);
    ck_assert_uint_eq(t->optional_n, 2);
    ck_assert_str_eq(t->optional[0], "note");
    ck_assert_str_eq(t->optional[1], "price");
    ck_assert_str_eq(t->policy.entity, ":sku");
    ck_assert_str_eq(t->policy.version, ":version");
    ck_assert_str_eq(t->policy.queue, "feed");
    ck_assert(t->policy.zero_rows == ZERO_STALE && t->policy.max_retries == 3);
    ck_assert(t->policy.soft_limit_us == 9000000 && t->policy.hard_limit_us == 10000000);
    ck_assert(t->policy.priority == -5 && t->policy.backoff_cap_us == 60000000);
    t++;
    ck_assert_str_eq(t->name, "resize.image-2");
    ck_assert(t->kind == HANDLER_EXEC && t->sql_n == 0 && t->policy.ack == ACK_EARLY);
    ck_assert_str_eq(t->argv[0], "./resize.sh");
    ck_assert_str_eq(t->argv[2], "a b");
    ck_assert_str_eq(t->argv[3], "c");
    ck_assert_ptr_null(t->argv[4]);
    ck_assert_str_eq(t->exec_text, "./resize.sh --q 'a b'\n\"c\"");
    ck_assert_uint_eq(t->env_n, 2);
    ck_assert_str_eq(t->env[0], "EMPTY=");
    ck_assert_str_eq(t->env[1], "TWO=a = b # c\nmore");
}

START_TEST(test_conf_full_file_is_read)
{
    struct conf *c = NULL;
    struct pawl_error e = {0};
    struct buf db = {0};

    ck_assert_msg(read_text(full, &c, &e) == PAWL_OK, "%s", e.msg);
    ck_assert_str_eq(c->path, path);
    ck_assert_str_eq(c->dir, dir);
    buf_printf(&db, "sqlite:%s/shop.db", dir);
    ck_assert_str_eq(c->db, buf_str(&db));
    check_full(c);
    conf_free(&c);
    ck_assert_ptr_null(c);
    conf_free(&c);
    conf_free(NULL);
    buf_free(&db);
}
END_TEST

/* CRLF, and no newline at the end, give the same. */
START_TEST(test_conf_crlf_is_the_same)
{
    struct conf *c = NULL;
    struct pawl_error e = {0};
    struct buf b = {0};

    for (const char *s = full; *s != '\0'; s++) {
        if (*s == '\n') buf_putc(&b, '\r');
        buf_putc(&b, *s);
    }
    b.n -= 2;
    b.data[b.n] = '\0';
    ck_assert_msg(read_text(buf_str(&b), &c, &e) == PAWL_OK, "%s", e.msg);
    check_full(c);
    conf_free(&c);
    buf_free(&b);
}
END_TEST

START_TEST(test_conf_defaults)
{
    struct conf *c = NULL;
    struct policy p;

    ck_assert(read_text("", &c, NULL) == PAWL_OK);
    ck_assert(c->concurrency == 8 && c->grace_us == 25000000 && c->lease_us == 30000000);
    ck_assert(c->db == NULL && c->on_connect_n == 0 && c->tasks_n == 0 && !c->accept_wal_risk);
    conf_free(&c);
    ck_assert(read_text("[task x]\nexec = true", &c, NULL) == PAWL_OK);
    policy_defaults(&p);
    ck_assert(c->tasks[0].policy.hard_limit_us == p.hard_limit_us);
    ck_assert_str_eq(c->tasks[0].policy.queue, p.queue);
    conf_free(&c);
}
END_TEST

START_TEST(test_conf_sql_tasks_have_a_short_hard_limit)
{
    struct pawl_error e = {0};
    struct conf *c = NULL;

    ck_assert_int_eq(read_text("[task a]\nsql = SELECT 1\n[task b]\nsql = SELECT 1\n"
                               "hard_limit = 5m\n[task c]\nexec = x\n", &c, &e), PAWL_OK);
    ck_assert_int_eq(c->tasks[0].policy.hard_limit_us, INT64_C(60000000));
    ck_assert_int_eq(c->tasks[1].policy.hard_limit_us, INT64_C(300000000));
    ck_assert_int_eq(c->tasks[2].policy.hard_limit_us, INT64_C(3600000000));
    conf_free(&c);
}
END_TEST

START_TEST(test_conf_c_tasks)
{
    static const char text[] = "[pawl]\nrunners = 7\n"
                               "[task a]\nc = lib/a:b.so:charge_2\n"
                               "[task b]\nc = /usr/p.so:x\nack = early\nhard_limit = 5s\n";
    struct pawl_error e = {0};
    struct conf *c = NULL;
    struct buf want = {0};

    ck_assert_msg(read_text(text, &c, &e) == PAWL_OK, "%s", e.msg);
    ck_assert_int_eq(c->runners, 7);
    struct conf_task *a = &c->tasks[0], *b = &c->tasks[1];
    buf_printf(&want, "%s/lib/a:b.so", dir);
    ck_assert_str_eq(a->plugin, buf_str(&want));
    ck_assert_str_eq(a->symbol, "charge_2");
    ck_assert_str_eq(a->c_text, "lib/a:b.so:charge_2");
    ck_assert_int_eq(a->c_line, 4);
    ck_assert(a->kind == HANDLER_C && a->mode == MODE_UNKNOWN);
    ck_assert_str_eq(b->plugin, "/usr/p.so");
    /* The default of hard_limit goes by what the plugin has; one that is set stays. */
    ck_assert(conf_set_mode(c, a, true, &e) == PAWL_OK && a->mode == MODE_PREPARED);
    ck_assert_int_eq(a->policy.hard_limit_us, INT64_C(3600000000));
    ck_assert(conf_set_mode(c, a, false, &e) == PAWL_OK && a->mode == MODE_EFFECT);
    ck_assert_int_eq(a->policy.hard_limit_us, 60000000);
    ck_assert(conf_set_mode(c, b, true, &e) == PAWL_OK);
    ck_assert_int_eq(b->policy.hard_limit_us, 5000000);
    buf_free(&want);
    conf_free(&c);
}
END_TEST

START_TEST(test_conf_db_is_relative_to_the_file)
{
    static const struct {
        const char *value, *want; /* want: after "sqlite:", %s = the directory */
    } rows[] = {
        {"sqlite:a.db", "%s/a.db"}, {"a.db", "%s/a.db"},         {"sqlite:sub/a", "%s/sub/a"},
        {"sqlite:../a", "%s/../a"}, {"sqlite:/x/a.db", "/x/a.db"}, {"/x/a.db", "/x/a.db"},
    };
    struct conf *c = NULL;

    for (size_t i = 0; i < UT_N(rows); i++) {
        struct buf text = {0}, want = {0};
        const char *tail = strncmp(rows[i].want, "%s", 2) == 0 ? rows[i].want + 2 : NULL;
        buf_printf(&text, "[pawl]\ndb = %s\n", rows[i].value);
        buf_printf(&want, "sqlite:%s%s", tail != NULL ? dir : "",
                   tail != NULL ? tail : rows[i].want);
        ck_assert(read_text(buf_str(&text), &c, NULL) == PAWL_OK);
        ck_assert_str_eq(c->db, buf_str(&want));
        conf_free(&c);
        buf_free(&text);
        buf_free(&want);
    }
    ck_assert(read_text("[pawl]\ndb = a.db\n", &c, NULL) == PAWL_OK);
    conf_free(&c);
    ck_assert_int_eq(chdir(dir), 0);
    ck_assert(conf_read("t.conf", &c, NULL) == PAWL_OK);
    ck_assert_str_eq(c->dir, ".");
    ck_assert_str_eq(c->db, "sqlite:a.db");
    conf_free(&c);
}
END_TEST

START_TEST(test_conf_sql_from_a_file)
{
    static const struct {
        const char *text, *why; /* why NULL: good */
    } rows[] = {
        {"SELECT 'a  \n  b',\r\n :n; -- done\n", NULL},
        {"SELECT 1; SELECT 2", "second statement"},
        {"", "empty"},
        {"SELECT '\xff'", "UTF-8"},
        {"SELECT '\x01'", "control"},
        {"BEGIN", "transaction"},
    };
    struct buf file = {0};
    struct pawl_error e = {0};
    struct conf *c = NULL;

    buf_printf(&file, "%s/q.sql", dir);
    for (size_t i = 0; i < UT_N(rows); i++) {
        put_file(buf_str(&file), rows[i].text, strlen(rows[i].text));
        enum pawl_rc rc = read_text("[task x]\n\nsql = @q.sql\n", &c, &e);
        if (rows[i].why == NULL) {
            ck_assert_msg(rc == PAWL_OK, "%s", e.msg);
            ck_assert_str_eq(c->tasks[0].sql[0].text, "SELECT 'a  \n  b',\r\n :n");
            ck_assert_int_eq(c->tasks[0].sql[0].line, 3);
            conf_free(&c);
            continue;
        }
        ck_assert(rc == PAWL_CONFIG);
        ck_assert_msg(strstr(e.msg, rows[i].why) != NULL, "%s", e.msg);
        ck_assert_msg(strstr(e.msg, "t.conf:3: sql = @q.sql: ") != NULL, "%s", e.msg);
    }
    put_file(buf_str(&file), "SELECT \0001", 9); /* a NUL must not end the text early */
    ck_assert(read_text("[task x]\nsql = @q.sql\n", &c, &e) == PAWL_CONFIG);
    ck_assert_int_eq(unlink(buf_str(&file)), 0);
    ck_assert(read_text("[task x]\nsql = @q.sql\n", &c, &e) == PAWL_CONFIG);
    ck_assert_msg(strstr(e.msg, "no such file") != NULL, "%s", e.msg);
    buf_free(&file);
}
END_TEST

START_TEST(test_conf_file_that_cannot_be_read)
{
    struct pawl_error e = {0};
    struct conf *c = NULL;
    size_t n = LIMIT_CONF_BYTES + 1;
    char *big = malloc(n);

    ck_assert(conf_read("/nonexistent/pawl.conf", &c, &e) == PAWL_NOTFOUND);
    ck_assert_msg(strstr(e.msg, "/nonexistent/pawl.conf") != NULL, "%s", e.msg);
    ck_assert_ptr_null(c);
    ck_assert(conf_read(dir, &c, &e) == PAWL_IO);
    ck_assert_ptr_nonnull(big);
    memset(big, '\n', n);
    put_file(path, big, n);
    ck_assert(conf_read(path, &c, &e) == PAWL_TOOBIG);
    put_file(path, big, n - 1);
    ck_assert(conf_read(path, &c, &e) == PAWL_OK);
    conf_free(&c);
    free(big);
}
END_TEST

#define SQL "[task x]\nsql = SELECT :a, :b\n"
#define EXEC "[task x]\nexec = true\n"
#define C "[task x]\nc = ./x.so:f\n"
static const struct bad {
    const char *text;
    int line;
    const char *what, *what2;
} bad[] = {
    /* the form */
    {"db = x.db\n", 1, "before the first section", "[pawl]"},
    {"  db = x.db\n", 1, "before any key", "[pawl]"},
    {"[pawl]\n  db = x.db\n", 2, "continues no value", "first column"},
    {"[pawl]\ndb = x.db\n\n  y\n", 4, "continues no value", "blank line"},
    {"[pawl]\ndb = x.db\n  # y\n", 3, "comment", "first column"},
    {"[pawl]\ndb = x.db\n  ; y\n", 3, "comment", "first column"},
    {EXEC "  [task y]\n", 3, "section", "first column"},
    {EXEC "  [pawl]\n", 3, "section", "first column"},
    {"[pawl]\nhello\n", 2, "key = value", "comment"},
    {"[pawl]\n= x\n", 2, "no key", "'='"},
    {"[pawl] # x\n", 1, "a section is", "nothing after"},
    {"[pawl\n", 1, "a section is", "[task NAME]"},
    {"[pawl]]\n", 1, "a section is", "[task NAME]"},
    {"[]\n", 1, "unknown section", "[pawl] and [task NAME]"},
    {"\xef\xbb\xbf[pawl]\n", 1, "byte order mark", "UTF-8"},
    {"[pawl]\n# \xff\n", 2, "UTF-8", ""},
    {"[pawl]\n# \xed\xa0\x80\n", 2, "UTF-8", ""},
    {"[pawl]\ndb = a\x01.db\n", 2, "0x01", "column 7"},
    {"[pawl]\r\rdb = a.db\n", 1, "0x0d", "column 7"},
    {"[pawl]\n#\x7f\n", 2, "0x7f", ""},
    /* sections */
    {"[pawl]\n[task x]\nexec = true\n[pawl]\n", 4, "[pawl] appears before", "line 1"},
    {EXEC "[task y]\nexec = true\n[task  x]\n", 5, "[task x] appears before", "line 1"},
    {"[paw]\n", 1, "unknown section [paw]", "[pawl]?"},
    {"[taks x]\n", 1, "unknown section [taks x]", "[task NAME]?"},
    {"[pawl x]\n", 1, "unknown section [pawl x]", "[pawl]?"},
    {"[worker]\n", 1, "unknown section [worker]", "[task NAME]"},
    {"[task]\n", 1, "[task NAME]", ""},
    {"[task X]\n", 1, "[task X]", "a-z"},
    {"[task a b]\n", 1, "[task a b]", "a-z"},
    {"[task .a]\n", 1, "[task .a]", "letter or digit"},
    /* [pawl] */
    {"[pawl]\nconcurency = 8\n", 2, "'concurency' in [pawl]", "'concurrency'"},
    {"[pawl]\nGrace = 8s\n", 2, "'Grace'", "'grace'"},
    {"[pawl]\nsql = SELECT 1\n", 2, "'sql' in [pawl]", "db concurrency"},
    {"[pawl]\ngrace = 1s\ngrace = 1s\n", 3, "grace is set before", "line 2"},
    {"[pawl]\ngrace =\n", 2, "grace has no value", ""},
    {"[pawl]\nconcurrency = 0\n", 2, "concurrency = 0", "1 to 256"},
    {"[pawl]\nconcurrency = 257\n", 2, "concurrency = 257", "1 to 256"},
    {"[pawl]\nconcurrency = 8x\n", 2, "concurrency = 8x", "1 to 256"},
    {"[pawl]\ngrace = 25\n", 2, "grace = 25", "10s"},
    {"[pawl]\ngrace = 2h\n", 2, "grace = 2h", "1h"},
    {"[pawl]\nlease = 999ms\n", 2, "lease = 999ms", "1s"},
    {"[pawl]\nlease = 61m\n", 2, "lease = 61m", "1h"},
    {"[pawl]\naccept_wal_risk = true\n", 2, "= true", "yes or no"},
    {"[pawl]\ndb = shop\n", 2, "db = shop", "sqlite:PATH"},
    {"[pawl]\ndb = mysql://x.db\n", 2, "mysql://x.db", "sqlite:PATH"},
    {"[pawl]\ndb = mysql:x.db\n", 2, "mysql:x.db", "sqlite:PATH"},
    {"[pawl]\ndb = sqlit:x.db\n", 2, "sqlit:x.db", "sqlite:PATH"},
    {"[pawl]\ndb = sqlite:\n", 2, "a store is a file", ""},
    {"[pawl]\ndb = sqlite::memory:\n", 2, "a store is a file", ""},
    {"[pawl]\ndb = sqlite:file:x?mode=ro\n", 2, "a store is a file", ""},
    {"[pawl]\ndb = sqlite:a.db\n     b\n", 2, "several lines", ""},
    {"[pawl]\n\non_connect = PRAGMA synchronous = OFF\n", 3, "on_connect: synchronous", "pragma"},
    {"[pawl]\non_connect = SELECT :a\n", 2, "on_connect: :a", "parameters"},
    {"[pawl]\non_connect = SELECT $a$x$a$\n", 2, "on_connect: ", "'...'"},
    /* handlers */
    {"\n[task x]\nmax_retries = 1\n", 2, "[task x] has no handler", "sql ="},
    {SQL "exec = true\n", 3, "both sql and exec", "one handler"},
    {"[task x]\nexec = true\nsql = SELECT 1\n", 3, "both sql and exec", "one handler"},
    {EXEC "exec = true\n", 3, "exec is set before", "line 2"},
    {EXEC "protocol = lines\n", 3, "unknown key 'protocol' in [task x]", "sql exec"},
    {"[task x]\nc = ./x.so\n", 2, "c = ./x.so", "FILE:NAME"},
    {"[task x]\nc = :f\n", 2, "c = :f", "FILE:NAME"},
    {"[task x]\nc = ./x.so:\n", 2, "c = ./x.so:", "FILE:NAME"},
    {"[task x]\nc = ./x.so:a-b\n", 2, "c = ./x.so:a-b", "FILE:NAME"},
    {"[task x]\nc = ./x.so:1a\n", 2, "c = ./x.so:1a", "FILE:NAME"},
    {"[task x]\nc = ./x.so\n  :f\n", 2, "several lines", "FILE:NAME"},
    {"[task x]\nc =\n", 2, "c has no value", ""},
    {C "c = ./y.so:f\n", 3, "c is set before", "line 2"},
    {C "exec = true\n", 3, "both exec and c", "one handler"},
    {SQL "c = ./x.so:f\n", 3, "both sql and c", "one handler"},
    {C "optional = a\n", 3, "optional means nothing to a c task", ""},
    {C "zero_rows = fail\n", 3, "zero_rows means nothing to a c task", ""},
    {C "env.A = x\n", 3, "env.A means nothing to a c task", ""},
    {C "transient = 2\n", 3, "transient means nothing to a c task", ""},
    {C "soft_limit = 1s\n", 3, "soft_limit means nothing to a c task", ""},
    {"[pawl]\nrunners = 0\n", 2, "runners = 0", "1 to 64"},
    {"[pawl]\nrunners = 65\n", 2, "runners = 65", "1 to 64"},
    {"[task x]\nhttp = http://x/\n", 2, "unknown key 'http'", ""},
    {EXEC "writes.x = UPDATE t SET a = 1\n", 3, "unknown key 'writes.x'", ""},
    {EXEC "write.x = UPDATE t SET a = 1\nexpect.y = 1\n", 4, "no write.y", ""},
    {EXEC "max_retry = 2\n", 3, "'max_retry'", "did you mean 'max_retries'"},
    {EXEC "hard limit = 2s\n", 3, "'hard limit'", "did you mean 'hard_limit'"},
    {EXEC "max_retry =\n", 3, "'max_retry'", "did you mean 'max_retries'"},
    {EXEC "max_retries =\n", 3, "max_retries has no value", ""},
    {"[task x]\nexec =\n", 2, "exec has no value", ""},
    {"[task x]\nsql =\n\n", 2, "sql has no value", ""},
    {SQL "optional =\n", 3, "optional has no value", ""},
    {"[task x]\nexec = ''\n", 2, "names no program", ""},
    {"[task x]\nexec = a | b\n", 2, "exec: ", "|"},
    {"[task x]\nexec = 'a\n", 2, "exec: ", ""},
    {EXEC "env.1A = x\n", 3, "env.1A", "env.NAME"},
    {EXEC "env. = x\n", 3, "env.", "env.NAME"},
    {EXEC "env.A B = x\n", 3, "env.A B", "env.NAME"},
    {EXEC "env.PAWL_DB = x\n", 3, "env.PAWL_DB", "itself"},
    {EXEC "env.A = x\nenv.A = y\n", 4, "env.A is set before", "line 3"},
    {EXEC "enw.A = x\n", 3, "unknown key 'enw.A'", ""},
    {EXEC "optional = a\n", 3, "optional means nothing", "exec"},
    {EXEC "zero_rows = fail\n", 3, "zero_rows means nothing", "exec"},
    {SQL "env.A = x\n", 3, "env.A means nothing", "sql"},
    {SQL "permanent = 2\n", 3, "permanent means nothing", "sql"},
    /* statements */
    {"[task x]\nsql = SELECT 1\nsql = BEGIN\n", 3, "sql: BEGIN", "take it out"},
    {"[task x]\nsql = SELECT 1;\n  SELECT 2\n", 2, "second statement", "give them one by one"},
    {"[task x]\nsql = DELETE FROM pawl_x_job\n", 2, "pawl_x_job", "private"},
    {"[task x]\nsql = SELECT $a$x$a$\n", 2, "$tag$", "write '...'"},
    {"[task x]\nsql = @\n", 2, "one file", ""},
    {"[task x]\nsql = @-\n", 2, "one file", ""},
    {"[task x]\nsql = @a\n  b\n", 2, "one file", ""},
    {SQL "optional = c\n", 3, "optional = c", "no statement of [task x] uses :c"},
    {SQL "optional = a :b\n", 3, "optional = :b", "without colon"},
    {SQL "optional = a,b\n", 3, "optional = a,b", "separated by blanks"},
    {SQL "optional = a a\n", 3, "listed twice", ""},
    {"[task x]\nsql = SELECT :args\noptional = args\n", 3, "optional = args", "Pawl binds"},
    {"[task x]\nsql = SELECT :job_id\noptional = job_id\n", 3, "optional = job_id", "Pawl binds"},
    {"[task x]\nsql = SELECT :job_key\noptional = job_key\n", 3, "job_key", "Pawl binds"},
    {"[task x]\nsql = SELECT :job_attempt\noptional = job_attempt\n", 3, "job_attempt", "binds"},
    /* policy */
    {EXEC "max_retries = many\n", 3, "max_retries = many", "0 to 1000"},
    {EXEC "backoff = 5s\n", 3, "backoff = 5s", "1s..600s"},
    {EXEC "ack = never\n", 3, "ack = never", "late or early"},
    {EXEC "queue = A\n", 3, "queue = A", "a-z"},
    {EXEC "priority = 101\n", 3, "priority = 101", "100"},
    {EXEC "ack = late\nack = late\n", 4, "ack is set before", "line 3"},
    {EXEC "transient = 1\npermanent = 1\n", 4, "permanent = 1", "two lists"},
    {SQL "ack = early\n", 3, "ack = early", "commit together"},
    {EXEC "entity = :a\n", 3, "entity without version", "both"},
    {EXEC "version = :a\n", 3, "version without entity", "both"},
    {EXEC "entity = a\nversion = :v\n", 3, "entity = a", ":"},
    {EXEC "entity = :a-b\nversion = :v\n", 3, "entity = :a-b", ":"},
    {EXEC "entity = :a\nversion = :job_id\n", 4, "version = :job_id", "member of args"},
    {EXEC "soft_limit = 11s\nhard_limit = 10s\n", 3, "soft_limit", "hard_limit (10s)"},
    {EXEC "hard_limit = 10s\nsoft_limit = 10s\n", 4, "soft_limit", "hard_limit (10s)"},
    {EXEC "soft_limit = 2h\n", 3, "soft_limit", "hard_limit (1h)"},
    {EXEC "hard_limit = 0\n", 3, "hard_limit = 0", ""},
};

START_TEST(test_conf_refuses_with_line_value_and_advice)
{
    const struct bad *b = &bad[_i];
    struct pawl_error e = {0};
    struct conf *c = NULL;
    struct buf at = {0};

    ck_assert_msg(read_text(b->text, &c, &e) == PAWL_CONFIG, "accepted: %s", b->text);
    ck_assert_ptr_null(c);
    ck_assert(e.rc == PAWL_CONFIG);
    buf_printf(&at, "%s:%d: ", path, b->line);
    ck_assert_msg(strncmp(e.msg, buf_str(&at), at.n) == 0, "%s: %s", buf_str(&at), e.msg);
    ck_assert_msg(strstr(e.msg, b->what) != NULL, "want %s: %s", b->what, e.msg);
    ck_assert_msg(strstr(e.msg, b->what2) != NULL, "want %s: %s", b->what2, e.msg);
    ck_assert_ptr_null(strchr(e.msg, '\n'));
    ck_assert(conf_read(path, &c, NULL) == PAWL_CONFIG);
    buf_free(&at);
}
END_TEST

/* n copies of `part` after `head`; %d in part is its number. */
static enum pawl_rc read_many(const char *head, const char *part, int n, struct pawl_error *e)
{
    const char *hole = strstr(part, "%d");
    struct conf *c = NULL;
    struct buf b = {0};
    enum pawl_rc rc;

    buf_puts(&b, head);
    for (int i = 0; i < n; i++) {
        if (hole == NULL) {
            buf_puts(&b, part);
            continue;
        }
        buf_put(&b, part, (size_t)(hole - part));
        buf_printf(&b, "%d%s", i, hole + 2);
    }
    rc = read_text(buf_str(&b), &c, e);
    buf_free(&b);
    conf_free(&c);
    return rc;
}

START_TEST(test_conf_limits_hold_at_the_edge)
{
    static const struct {
        const char *head, *part;
        int max;
        const char *why;
    } rows[] = {
        {"[pawl]\n", "[task t%d]\nexec = true\n", LIMIT_TASKS, "256 tasks"},
        {"[task x]\n", "sql = SELECT 1\n", LIMIT_STATEMENTS, "at most 32"},
        {"[pawl]\n", "on_connect = SELECT 1\n", LIMIT_STATEMENTS, "more than 32"},
        {EXEC, "env.A%d = x\n", CONF_ENV_N_MAX, "more than 256"},
        {"", "#", LIMIT_SQL_BYTES, "longer than 64 KiB"},
        {EXEC "env.A =", "\n  1234567", LIMIT_SQL_BYTES / 8, "longer than 64 KiB"},
    };

    for (size_t i = 0; i < UT_N(rows); i++) {
        struct pawl_error e = {0};
        ck_assert_msg(read_many(rows[i].head, rows[i].part, rows[i].max, &e) == PAWL_OK, "%s",
                      e.msg);
        ck_assert(read_many(rows[i].head, rows[i].part, rows[i].max + 1, &e) == PAWL_CONFIG);
        ck_assert_msg(strstr(e.msg, rows[i].why) != NULL, "%s", e.msg);
    }
}
END_TEST

START_TEST(test_conf_nul_is_refused_anywhere)
{
    struct pawl_error e = {0};
    struct conf *c = NULL;

    for (size_t at = 0; at < sizeof full - 1; at++) {
        char text[sizeof full];
        for (size_t i = 0; i < sizeof full; i++) text[i] = full[i];
        text[at] = '\0';
        put_file(path, text, sizeof full - 1);
        ck_assert_msg(conf_read(path, &c, &e) == PAWL_CONFIG, "NUL at %zu", at);
        ck_assert_ptr_nonnull(strstr(e.msg, "0x00"));
    }
}
END_TEST

/* A line of nonsense, put between any two lines of a good file, is refused at that very line. */
START_TEST(test_conf_nonsense_is_never_overlooked)
{
    static const char *const junk[] = {"hello", "colour = red", "= 1", "[pawl]x", "\xff", "sql"};

    for (size_t at = 0; at <= sizeof full - 1; at++) {
        int line = 1;
        if (at > 0 && full[at - 1] != '\n') continue;
        if (at > 1 && full[at - 2] == '=') continue; /* the key above has no value: said first */
        for (size_t i = 0; i < at; i++) line += full[i] == '\n';
        for (size_t k = 0; k < UT_N(junk); k++) {
            struct pawl_error e = {0};
            struct conf *c = NULL;
            struct buf b = {0}, where = {0};
            buf_put(&b, full, at);
            buf_printf(&b, "%s\n%s", junk[k], full + at);
            buf_printf(&where, "%s:%d: ", path, line);
            ck_assert(read_text(buf_str(&b), &c, &e) == PAWL_CONFIG);
            ck_assert_msg(strncmp(e.msg, buf_str(&where), where.n) == 0, "%s: %s",
                          buf_str(&where), e.msg);
            buf_free(&b);
            buf_free(&where);
        }
    }
}
END_TEST

/* What must hold for any file that is accepted. */
static void check_accepted(const struct conf *c)
{
    char why[256];

    ck_assert(c->concurrency >= 1 && c->concurrency <= LIMIT_CONCURRENCY);
    ck_assert(c->grace_us >= 0 && c->lease_us >= 1000000 && c->lease_us <= 3600000000);
    ck_assert(c->db == NULL || strncmp(c->db, "sqlite:", 7) == 0);
    for (size_t i = 0; i < c->tasks_n; i++) {
        const struct conf_task *t = &c->tasks[i];
        ck_assert(name_ok(t->name, NULL) && policy_check(&t->policy, why, sizeof why));
        ck_assert((t->kind == HANDLER_SQL) == (t->sql_n > 0));
        ck_assert((t->kind == HANDLER_EXEC) == (t->argv != NULL && t->argv[0] != NULL));
        ck_assert((t->kind == HANDLER_C) == (t->plugin != NULL && t->symbol != NULL));
        for (size_t k = 0; k < t->sql_n; k++) {
            struct arena a = {0};
            struct sql_scan s;
            ck_assert(sql_scan(t->sql[k].text, &a, &s, NULL) == PAWL_OK);
            ck_assert(s.end == strlen(t->sql[k].text));
            ck_assert(s.params_n == t->sql[k].scan.params_n);
            arena_free(&a);
        }
        for (size_t k = 0; k < i; k++) ck_assert_str_ne(t->name, c->tasks[k].name);
    }
}

START_TEST(test_conf_survives_any_bytes)
{
    static const char alphabet[] = "[]=#;@:. \t\n\r'\"\\aes019_-\xc3\xa9\x01";
    struct env_fake f;
    size_t accepted = 0;

    env_fake_init(&f, ut_seed(20270103), 0);
    for (int round = 0; round < 6000; round++) {
        char text[sizeof full];
        size_t n = sizeof full - 1;
        struct pawl_error e = {0};
        struct conf *c = NULL;
        if (round % 4 == 0) {
            n = env_below(&f.env, 200);
            for (size_t i = 0; i < n; i++) text[i] = (char)env_below(&f.env, 256);
        } else {
            size_t edits = 1 + env_below(&f.env, 3);
            for (size_t i = 0; i < n; i++) text[i] = full[i];
            for (size_t k = 0; k < edits; k++) {
                text[env_below(&f.env, n)] = alphabet[env_below(&f.env, sizeof alphabet - 1)];
            }
            if (env_below(&f.env, 8) == 0) n = env_below(&f.env, n);
        }
        put_file(path, text, n);
        enum pawl_rc rc = conf_read(path, &c, &e);
        ck_assert(rc == PAWL_OK || (rc == PAWL_CONFIG && strncmp(e.msg, path, strlen(path)) == 0));
        ck_assert((rc == PAWL_OK) == (c != NULL));
        if (c != NULL) check_accepted(c);
        accepted += c != NULL;
        conf_free(&c);
    }
    ck_assert_uint_gt(accepted, 300); /* or the loop tests nothing */
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_checked_fixture(tc, make_dir, drop_dir);
    tcase_add_test(tc, test_conf_full_file_is_read);
    tcase_add_test(tc, test_conf_crlf_is_the_same);
    tcase_add_test(tc, test_conf_defaults);
    tcase_add_test(tc, test_conf_sql_tasks_have_a_short_hard_limit);
    tcase_add_test(tc, test_conf_c_tasks);
    tcase_add_test(tc, test_conf_db_is_relative_to_the_file);
    tcase_add_test(tc, test_conf_sql_from_a_file);
    tcase_add_test(tc, test_conf_file_that_cannot_be_read);
    tcase_add_loop_test(tc, test_conf_refuses_with_line_value_and_advice, 0, UT_N(bad));
    tcase_add_test(tc, test_conf_limits_hold_at_the_edge);
    tcase_add_test(tc, test_conf_nul_is_refused_anywhere);
    tcase_add_test(tc, test_conf_nonsense_is_never_overlooked);
    tcase_add_test(tc, test_conf_survives_any_bytes);
}

int main(void)
{
    return ut_main("conf", add, 60);
}

// SPDX-License-Identifier: Apache-2.0
/* lanes.c - declare a configuration's tasks and sort them into their lanes. */
#include "worker/lanes.h"

#include "base/err.h"
#include "core/rules.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The line of `text` that sets `name` ("name = ..."), its length in *n; NULL: there is none. */
static const char *setting(const char *text, const char *name, size_t name_n, size_t *n)
{
    for (const char *line = text; line != NULL && *line != '\0';) {
        const char *end = strchrnul(line, '\n');
        if ((size_t)(end - line) > name_n && memcmp(line, name, name_n) == 0
            && (line[name_n] == ' ' || line[name_n] == '=')) {
            *n = (size_t)(end - line);
            return line;
        }
        line = *end == '\n' ? end + 1 : NULL;
    }
    return NULL;
}

static void put_setting(struct buf *out, const char *who, const char *line, size_t n)
{
    buf_puts(out, who);
    if (line != NULL) buf_put(out, line, n);
    else buf_puts(out, "(not set)");
    buf_putc(out, '\n');
}

/* Walk the settings of `a` and report those that `b` sets otherwise (or, with only_missing, those
 * that it does not have). */
static void diff_settings(const char *a, const char *b, bool only_missing, struct buf *out)
{
    for (const char *line = a; line != NULL && *line != '\0';) {
        const char *end = strchrnul(line, '\n');
        size_t n = (size_t)(end - line), name_n = strcspn(line, " =\n"), other_n = 0;
        const char *other = setting(b, line, name_n, &other_n);
        bool same = other != NULL && other_n == n && memcmp(line, other, n) == 0;
        if (only_missing && other == NULL) {
            put_setting(out, "  stored: ", NULL, 0);
            put_setting(out, "  config: ", line, n);
        } else if (!only_missing && !same) {
            put_setting(out, "  stored: ", line, n);
            put_setting(out, "  config: ", other, other_n);
        }
        line = *end == '\n' ? end + 1 : NULL;
    }
}

void policy_diff(const char *stored, const char *configured, struct buf *out)
{
    diff_settings(stored, configured, false, out);
    diff_settings(configured, stored, true, out);
}

struct declare {
    struct store *st;
    bool apply;
    lane_diff_fn *fn;
    void *ctx;
};

static enum pawl_rc declare_one(const struct declare *d, const struct conf_task *t,
                                struct lane_task *out, struct pawl_error *e)
{
    struct buf stored = {0}, configured = {0}, text = {0};
    struct lane_diff diff = {.task = t->name, .change = LANE_SAME, .text = ""};
    bool differs = false;
    char why[160] = "";
    enum pawl_rc rc;

    rc = store_task_declare(d->st, t->name, &t->policy, false, &out->id, &stored, &differs, e);
    if (rc != PAWL_OK) goto out;
    if (differs) {
        policy_text(&t->policy, &configured);
        policy_diff(buf_str(&stored), buf_str(&configured), &text);
        diff.change = d->apply ? LANE_REPLACED : LANE_DIFFERS;
        diff.text = buf_str(&text);
    }
    if (differs && d->apply) {
        buf_clear(&stored);
        rc = store_task_declare(d->st, t->name, &t->policy, true, &out->id, &stored, &differs, e);
        if (rc != PAWL_OK) goto out;
        assert(!differs);
    }
    if (d->fn != NULL) d->fn(d->ctx, &diff);
    out->name = t->name;
    out->native = t->kind == HANDLER_C;
    policy_defaults(&out->policy);
    if (!policy_parse(&out->policy, buf_str(&stored), why, sizeof why)) {
        rc = pawl_fail(e, PAWL_CONFIG, "task %s: the stored policy cannot be read: %s; store this "
                       "configuration's with --apply", t->name, why);
    }
out:
    buf_free(&stored);
    buf_free(&configured);
    buf_free(&text);
    return rc;
}

enum { LEASED, EFFECT, PREPARED, ALL, LANES_N };

static bool lanes_alloc(struct lanes *l, const struct conf *conf, struct lane_task **tasks,
                        const struct conf_task ***confs)
{
    for (int i = 0; i < LANES_N; i++) {
        tasks[i] = arena_alloc(&l->arena, (conf->tasks_n + 1) * sizeof **tasks);
        confs[i] = arena_alloc(&l->arena, (conf->tasks_n + 1) * sizeof **confs);
        if (tasks[i] == NULL || confs[i] == NULL) return false;
    }
    return true;
}

enum pawl_rc lanes_declare(struct store *st, const struct conf *conf, bool apply,
                           const char *const *queues, size_t queues_n, lane_diff_fn *fn, void *ctx,
                           struct lanes *out, struct pawl_error *e)
{
    struct declare d = {.st = st, .apply = apply, .fn = fn, .ctx = ctx};
    struct lane_task *tasks[LANES_N], one;
    const struct conf_task **confs[LANES_N];
    size_t n[LANES_N] = {0};
    enum pawl_rc rc = PAWL_OK;

    memset(out, 0, sizeof *out);
    if (!lanes_alloc(out, conf, tasks, confs)) rc = pawl_fail(e, PAWL_NOMEM, "declare the tasks");
    for (size_t i = 0; i < conf->tasks_n && rc == PAWL_OK; i++) {
        const struct conf_task *t = &conf->tasks[i];
        int k = t->mode == MODE_EFFECT ? EFFECT : t->mode == MODE_PREPARED ? PREPARED : LEASED;
        assert(t->mode != MODE_UNKNOWN);
        if ((rc = declare_one(&d, t, &one, e)) != PAWL_OK) break;
        tasks[k][n[k]] = tasks[ALL][n[ALL]] = one;
        confs[k][n[k]++] = t;
        n[ALL]++;
    }
    if (rc != PAWL_OK) {
        lanes_free(out);
        return rc;
    }
    out->leased = (struct lane_conf){{tasks[LEASED], n[LEASED], queues, queues_n}, confs[LEASED]};
    out->effect = (struct lane_conf){{tasks[EFFECT], n[EFFECT], queues, queues_n}, confs[EFFECT]};
    out->prepared = (struct lane_conf){{tasks[PREPARED], n[PREPARED], queues, queues_n},
                                       confs[PREPARED]};
    out->all = (struct lane){tasks[ALL], n[ALL], queues, queues_n};
    return PAWL_OK;
}

void lanes_free(struct lanes *l)
{
    arena_free(&l->arena);
    memset(l, 0, sizeof *l);
}

/* --- fingerprint --- FNV-1a, 64 bit: it finds an edited file, it does not resist an attacker. */

static uint64_t mix(uint64_t h, const char *s)
{
    for (; s != NULL && *s != '\0'; s++) h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    return (h ^ 0x1ff) * 0x100000001b3u; /* the end of a text counts, "" is not NULL's business */
}

static uint64_t mix_write(uint64_t h, const struct conf_write *w)
{
    char expect[24];

    (void)snprintf(expect, sizeof expect, "%" PRId64, w->expect);
    return mix(mix(mix(h, w->name), w->sql.text), expect);
}

void conf_fingerprint(const struct conf *conf, char out[FINGERPRINT_BYTES])
{
    uint64_t h = 0xcbf29ce484222325u;
    struct buf text = {0};

    for (size_t i = 0; i < conf->on_connect_n; i++) h = mix(h, conf->on_connect[i]);
    for (size_t i = 0; i < conf->tasks_n; i++) {
        const struct conf_task *t = &conf->tasks[i];
        if (t->mode == MODE_LEASED) continue;
        buf_clear(&text);
        policy_text(&t->policy, &text);
        h = mix(mix(h, t->name), buf_str(&text));
        h = mix(mix(mix(h, t->plugin), t->symbol), conf_mode_name(t->mode));
        for (size_t j = 0; j < t->sql_n; j++) h = mix(h, t->sql[j].text);
        for (size_t j = 0; j < t->optional_n; j++) h = mix(h, t->optional[j]);
        h = mix(h, t->exec_text);
        for (size_t j = 0; j < t->env_n; j++) h = mix(h, t->env[j]);
        for (size_t j = 0; j < t->writes_n; j++) h = mix_write(h, &t->writes[j]);
    }
    (void)snprintf(out, FINGERPRINT_BYTES, "%016" PRIx64, h);
    buf_free(&text);
}

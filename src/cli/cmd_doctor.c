// SPDX-License-Identifier: Apache-2.0
/* cmd_doctor.c - pawl doctor: what endangers jobs here, and what to do about it. */
#include <inttypes.h>

#include "cli/cli.h"

struct told { struct cli *c; int64_t n[PAWL_DANGER + 1]; };

static const struct { const char *json, *word; enum cli_color color; } kinds[] = {
    [PAWL_NOTE] = {"note", "note", CLI_DIM},
    [PAWL_UNSEEN] = {"unseen", "not seen", CLI_DIM},
    [PAWL_WARNING] = {"warning", "warning", CLI_YELLOW},
    [PAWL_DANGER] = {"danger", "DANGER", CLI_RED},
};

static bool advice(void *ctx, const struct pawl_advice *a)
{
    struct told *t = ctx;
    struct buf *b = &t->c->out;
    t->n[a->severity]++;
    if (t->c->json) {
        buf_putc(b, '{');
        cli_json_str(b, "check", a->check);
        cli_json_str(b, "severity", kinds[a->severity].json);
        cli_json_str(b, "what", a->what);
        cli_json_str(b, "fix", a->fix);
        buf_puts(b, "}\n");
        return cli_emit(t->c);
    }
    buf_printf(b, "%s%s%s %s: ", cli_color(kinds[a->severity].color), kinds[a->severity].word,
               cli_color(CLI_RESET), a->check);
    cli_safe(b, a->what, 0);
    buf_puts(b, "\n    ");
    cli_safe(b, a->fix, 0);
    buf_putc(b, '\n');
    return cli_emit(t->c);
}

static int doctor_run(struct cli *c)
{
    struct told t = {.c = c};
    struct pawl_error e = {.rc = PAWL_OK};
    struct buf *b = &c->out;
    int64_t old_us = 0;
    int looked = 0, x = cli_duration(c, "old", &old_us);
    if (x != 0) return x;
    if (cli_has(c, "old") && old_us == 0) old_us = 1;
    if ((x = cli_open(c)) != 0) return x;
    if (pawl_doctor(c->pawl, old_us, advice, &t, &looked, &e) != PAWL_OK) return cli_fail(c, &e);
    const int64_t found = t.n[PAWL_WARNING] + t.n[PAWL_DANGER];
    if (c->json) {
        buf_putc(b, '{');
        cli_json_int(b, "looked", looked);
        cli_json_int(b, "findings", found);
        cli_json_int(b, "notes", t.n[PAWL_NOTE]);
        cli_json_int(b, "unseen", t.n[PAWL_UNSEEN]);
        buf_puts(b, "}\n");
    } else if (found == 0) {
        buf_printf(b, "%d looks, nothing that has to be done\n", looked);
    } else {
        buf_printf(b, "%d looks, %" PRId64 " findings\n", looked, found);
    }
    return found == 0 ? 0 : EXIT_NO;
}

static const struct cli_opt opts[] = {
    {"old", 0, "DURATION", "what waits or is held for longer is a finding (15m)", 0},
    {NULL, 0, NULL, NULL, 0},
};
static const char *const examples[] = {"pawl doctor", "pawl --json doctor --old 1h", NULL};
const struct cmd_entry cmd_doctor = {
    .name = "doctor",
    .synopsis = "[OPTION...]",
    .summary = "what endangers jobs here, with the fix; exit 1 when something has to be done",
    .opts = opts,
    .examples = examples,
    .run = doctor_run,
    .notes = "It looks at the machine, the store, its settings and its history, and changes\n"
             "nothing. Notes, and what this role cannot see, do not count for the exit code.\n",
};

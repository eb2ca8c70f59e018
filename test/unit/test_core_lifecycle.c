// SPDX-License-Identifier: Apache-2.0
/* test_core_lifecycle.c - the table of states and events, and the names of the domain. */
#include "core/lifecycle.h"

#include <string.h>
#include "lib/ut.h"

/* Written down a second time, by hand and in another shape: every allowed move, nothing else. */
static const struct { enum pawl_state from; enum event ev; enum pawl_state to; } allowed[] = {
    { PAWL_STATE_READY, EV_CLAIM, PAWL_STATE_RUNNING },
    { PAWL_STATE_READY, EV_DONE, PAWL_STATE_DONE },
    { PAWL_STATE_READY, EV_RETRY, PAWL_STATE_READY },
    { PAWL_STATE_READY, EV_BURY, PAWL_STATE_DEAD },
    { PAWL_STATE_READY, EV_LOST, PAWL_STATE_READY },
    { PAWL_STATE_READY, EV_SUSPECT, PAWL_STATE_READY },
    { PAWL_STATE_READY, EV_SNOOZE, PAWL_STATE_READY },
    { PAWL_STATE_READY, EV_DROP, PAWL_STATE_DROPPED },
    { PAWL_STATE_READY, EV_CANCEL, PAWL_STATE_CANCELLED },
    { PAWL_STATE_READY, EV_RUN_NOW, PAWL_STATE_READY },
    { PAWL_STATE_RUNNING, EV_DONE, PAWL_STATE_DONE },
    { PAWL_STATE_RUNNING, EV_RETRY, PAWL_STATE_READY },
    { PAWL_STATE_RUNNING, EV_BURY, PAWL_STATE_DEAD },
    { PAWL_STATE_RUNNING, EV_LOST, PAWL_STATE_READY },
    { PAWL_STATE_RUNNING, EV_SUSPECT, PAWL_STATE_READY },
    { PAWL_STATE_RUNNING, EV_RELEASE, PAWL_STATE_READY },
    { PAWL_STATE_RUNNING, EV_SNOOZE, PAWL_STATE_READY },
    { PAWL_STATE_RUNNING, EV_DROP, PAWL_STATE_DROPPED },
    { PAWL_STATE_RUNNING, EV_CANCEL, PAWL_STATE_CANCELLED },
    { PAWL_STATE_DEAD, EV_REPLAY, PAWL_STATE_DEAD },
    { PAWL_STATE_DEAD, EV_DISCARD, PAWL_STATE_DROPPED },
    { PAWL_STATE_DONE, EV_PRUNE, PAWL_STATE_PRUNED },
    { PAWL_STATE_DROPPED, EV_PRUNE, PAWL_STATE_PRUNED },
    { PAWL_STATE_CANCELLED, EV_PRUNE, PAWL_STATE_PRUNED },
};

START_TEST(test_lifecycle_allows_exactly_the_written_moves)
{
    for (int s = 0; s < PAWL_STATE_N; s++)
        for (int ev = 0; ev < EV_N; ev++) {
            enum pawl_state want = PAWL_STATE_N;
            for (size_t i = 0; i < UT_N(allowed); i++)
                if ((int)allowed[i].from == s && (int)allowed[i].ev == ev) want = allowed[i].to;
            ck_assert_msg(lifecycle_next((enum pawl_state)s, (enum event)ev) == want, "%s x %s",
                          pawl_state_name((enum pawl_state)s), event_name((enum event)ev));
        }
    ck_assert_int_eq(lifecycle_next(PAWL_STATE_N, EV_DONE), PAWL_STATE_N);
    ck_assert_int_eq(lifecycle_next(PAWL_STATE_READY, EV_N), PAWL_STATE_N);
    ck_assert_int_eq(lifecycle_next((enum pawl_state)-1, (enum event)-1), PAWL_STATE_N);
}
END_TEST

START_TEST(test_lifecycle_nothing_leads_back_from_a_terminal_state)
{
    for (int s = 0; s < PAWL_STATE_N; s++) {
        if (!lifecycle_terminal((enum pawl_state)s)) continue;
        for (int ev = 0; ev < EV_N; ev++) {
            enum pawl_state to = lifecycle_next((enum pawl_state)s, (enum event)ev);
            ck_assert(to == PAWL_STATE_N || lifecycle_terminal(to));
        }
    }
    ck_assert(!lifecycle_terminal(PAWL_STATE_READY));
    ck_assert(!lifecycle_terminal(PAWL_STATE_RUNNING));
    ck_assert(lifecycle_terminal(PAWL_STATE_DEAD));
}
END_TEST

START_TEST(test_lifecycle_print_has_one_line_per_move)
{
    struct buf b = { 0 };
    size_t lines = 0;

    lifecycle_print(&b);
    for (const char *p = buf_str(&b); (p = strchr(p, '\n')) != NULL; p++) lines++;
    ck_assert_uint_eq(lines, UT_N(allowed) + 1);
    for (size_t i = 0; i < UT_N(allowed); i++) {
        char line[64];
        snprintf(line, sizeof line, "\n%-10s %-8s %-10s ", pawl_state_name(allowed[i].from),
                 event_name(allowed[i].ev), pawl_state_name(allowed[i].to));
        ck_assert_msg(strstr(buf_str(&b), line) != NULL, "%s", line);
    }
    buf_free(&b);
}
END_TEST

START_TEST(test_names_of_classes_and_outcomes_round_trip)
{
    enum dead_class c;
    enum outcome o;

    for (int i = 0; i < DEAD_CLASS_N; i++) {
        ck_assert(dead_class_parse(dead_class_name((enum dead_class)i), &c));
        ck_assert_int_eq(c, i);
    }
    for (int i = 0; i < OUT_N; i++) {
        ck_assert(outcome_parse(outcome_name((enum outcome)i), &o));
        ck_assert_int_eq(o, i);
    }
    for (int i = 0; i < EV_N; i++) ck_assert_str_ne(event_name((enum event)i), "?");
    ck_assert(!dead_class_parse("Poison", &c));
    ck_assert(!dead_class_parse("", &c));
    ck_assert(!outcome_parse("unknown", &o));
    ck_assert_str_eq(dead_class_name(DEAD_CLASS_N), "?");
    ck_assert_str_eq(outcome_name(OUT_N), "?");
    ck_assert_str_eq(dead_class_name(DEAD_IN_DOUBT), "in_doubt");
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, test_lifecycle_allows_exactly_the_written_moves);
    tcase_add_test(tc, test_lifecycle_nothing_leads_back_from_a_terminal_state);
    tcase_add_test(tc, test_lifecycle_print_has_one_line_per_move);
    tcase_add_test(tc, test_names_of_classes_and_outcomes_round_trip);
}

int main(void) { return ut_main("lifecycle", add, 10); }

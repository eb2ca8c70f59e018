// SPDX-License-Identifier: Apache-2.0
/* tables.c - all that a store is, table by table, in the order in which it is copied: names before
 * what refers to them. A new column of a migration belongs here, too (test_copy.py compares). */
#include "store/verb/mover.h"

#define COUNTERS {"runs", 'i'}, {"failures", 'i'}, {"lost", 'i'}, {"releases", 'i'}, \
    {"snoozes", 'i'}

const struct db_table db_tables[DB_TABLES_N] = {
    { "task", "tasks", "id", true, 1,
      { {"id", 'i'}, {"name", 't'}, {"policy", 't'}, {"queue_id", 'i'}, {"priority", 'j'},
        {"paused", 'j'}, {"created_at_us", 'i'} }, 7 },
    { "queue", "queues", "id", true, 1,
      { {"id", 'i'}, {"name", 't'}, {"paused", 'j'}, {"created_at_us", 'i'} }, 4 },
    { "job", "jobs", "id", true, 0,
      { {"id", 'i'}, {"root_id", 'i'}, {"gen", 'i'}, {"replay_of", 'i'}, {"task_id", 'i'},
        {"queue_id", 'i'}, {"source", 't'}, {"key", 't'}, {"args", 'a'}, {"headers", 't'},
        {"trace", 't'}, {"entity", 't'}, {"version", 'i'}, {"serial", 't'}, {"priority", 'j'},
        {"max_retries", 'i'}, {"run_at_us", 'i'}, {"expires_at_us", 'i'},
        {"created_at_us", 'i'} }, 19 },
    { "key", "keys", "task_id, source, key", false, 3,
      { {"task_id", 'i'}, {"source", 't'}, {"key", 't'}, {"job_id", 'i'}, {"args_hash", 'i'},
        {"args_bytes", 'i'}, {"state", 't'}, {"result", 't'}, {"expires_at_us", 'i'} }, 9 },
    { "ready", "ready", "task_id, queue_id, rank, run_at_us, id", false, 4,
      { {"task_id", 'i'}, {"queue_id", 'i'}, {"rank", 'i'}, {"run_at_us", 'i'}, {"id", 'i'},
        {"moved", 'j'}, COUNTERS, {"suspect", 'j'} }, 12 },
    { "running", "running", "job_id", false, 0,
      { {"job_id", 'i'}, {"lease_id", 'b'}, {"worker", 't'}, {"token", 'i'},
        {"started_at_us", 'i'}, {"task_id", 'i'}, {"queue_id", 'i'}, {"rank", 'i'},
        {"run_at_us", 'i'}, COUNTERS, {"suspect", 'j'} }, 15 },
    { "done", "done", "job_id", false, 0,
      { {"job_id", 'i'}, {"outcome", 't'}, {"lease_id", 'b'}, {"worker", 't'},
        {"started_at_us", 'i'}, {"ended_at_us", 'i'}, COUNTERS, {"result", 't'} }, 12 },
    { "dead", "dead", "job_id", false, 0,
      { {"job_id", 'i'}, {"class", 't'}, {"reason", 'e'}, {"error", 'e'}, {"worker", 't'},
        {"ended_at_us", 'i'}, COUNTERS, {"replayed_as", 'i'}, {"replay_reason", 'e'} }, 13 },
    { "dropped", "dropped", "job_id", false, 0,
      { {"job_id", 'i'}, {"outcome", 't'}, {"reason", 'e'}, {"error", 'e'}, {"worker", 't'},
        {"ended_at_us", 'i'}, COUNTERS, {"replayed_as", 'i'} }, 12 },
    { "cancelled", "cancelled", "job_id", false, 0,
      { {"job_id", 'i'}, {"reason", 'e'}, {"ended_at_us", 'i'}, COUNTERS }, 8 },
    { "attempt", "attempts", "job_id, n", false, 0,
      { {"job_id", 'i'}, {"n", 'i'}, {"lease_id", 'b'}, {"outcome", 't'}, {"worker", 't'},
        {"host", 'e'}, {"build", 'e'}, {"started_at_us", 'i'}, {"ended_at_us", 'i'},
        {"exit_code", 'j'}, {"signal", 'j'}, {"max_rss_kib", 'i'}, {"delay_us", 'i'},
        {"error", 'e'}, {"out_tail", 'e'}, {"err_tail", 'e'} }, 16 },
    { "version", "versions", "task_id, entity", false, 3,
      { {"task_id", 'i'}, {"entity", 't'}, {"version", 'i'}, {"job_id", 'i'}, {"args_hash", 'i'},
        {"args_bytes", 'i'} }, 6 },
    { "blame", "last words", "nonce", false, -1, { {"nonce", 't'}, {"read_at_us", 'i'} }, 2 },
    { "counter", "counters", "name", false, -1, { {"name", 't'}, {"value", 'i'} }, 2 },
};

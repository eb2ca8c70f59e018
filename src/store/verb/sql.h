// SPDX-License-Identifier: Apache-2.0
/* sql.h - every statement of the verbs, named once. Prepared on first use (db_q).
 *
 * Written as SQLite takes them. PostgreSQL's are made from these (pg/pg_text.c: names, numbers of
 * parameters), or replaced (pg/pg_sql.h). */
#ifndef VERB_SQL_H
#define VERB_SQL_H

#define DB_COUNTERS "runs, failures, lost, releases, snoozes"
/* Counters that a run can be decided by. A row without is damaged: it is passed over, so that it
 * does not end every worker that meets it, and `pawl check` names it. */
#define DB_COUNTER_MAX ((1LL << 50) - 1)
#define DB_SANE "(runs | failures | lost | releases | snoozes) BETWEEN 0 AND 1125899906842623"

#define DB_ROWS_OF                                                                                \
    "SELECT job_id, lease_id, started_at_us, task_id, queue_id, rank, run_at_us, " DB_COUNTERS    \
    ", suspect FROM pawl_x_running WHERE worker = ?1 ORDER BY job_id LIMIT 1024"

#define Q_TABLE(X)                                                                                \
    /* transactions */                                                                            \
    X(BEGIN, "BEGIN IMMEDIATE")                                                                   \
    X(BEGIN_READ, "BEGIN")                                                                        \
    X(COMMIT, "COMMIT")                                                                           \
    X(ROLLBACK, "ROLLBACK")                                                                       \
    X(SAVE, "SAVEPOINT pawl_job")                                                                 \
    X(SAVE_BACK, "ROLLBACK TO pawl_job")                                                          \
    X(SAVE_KEEP, "RELEASE pawl_job")                                                              \
    X(DATA_VERSION, "PRAGMA data_version")                                                        \
    /* names */                                                                                   \
    X(TASK_GET, "SELECT id, coalesce(queue_id, 0), priority, policy IS NOT NULL"                  \
                " FROM pawl_x_task WHERE name = ?1")                                              \
    X(TASK_ADD, "INSERT INTO pawl_x_task (name, created_at_us) VALUES (?1, ?2)")                  \
    X(TASK_NAMES, "SELECT name FROM pawl_x_task WHERE policy IS NOT NULL"                         \
                  " ORDER BY name LIMIT 1000")                                                    \
    X(TASK_POLICY, "SELECT policy, name FROM pawl_x_task WHERE id = ?1")                          \
    X(TASK_SET, "UPDATE pawl_x_task SET policy = ?2, queue_id = ?3, priority = ?4 WHERE id = ?1") \
    X(TASK_LOOK, "SELECT paused, EXISTS (SELECT 1 FROM pawl_x_ready"                              \
                 " INDEXED BY pawl_x_ready_suspect WHERE suspect = 1 AND task_id = ?1)"           \
                 " FROM pawl_x_task WHERE id = ?1")                                               \
    X(TASK_PAUSE, "UPDATE pawl_x_task SET paused = ?2 WHERE name = ?1")                           \
    X(QUEUE_GET, "SELECT id FROM pawl_x_queue WHERE name = ?1")                                   \
    X(QUEUE_ADD, "INSERT INTO pawl_x_queue (name, created_at_us) VALUES (?1, ?2)")                \
    X(QUEUE_INFO, "SELECT name, paused FROM pawl_x_queue WHERE id = ?1")                          \
    X(QUEUE_NAMES, "SELECT name FROM pawl_x_queue ORDER BY name LIMIT 1000")                      \
    X(QUEUE_PAUSE, "UPDATE pawl_x_queue SET paused = ?2 WHERE name = ?1")                         \
    X(COUNT, "INSERT INTO pawl_x_counter AS c (name, value) VALUES (?1, ?2)"                      \
             " ON CONFLICT (name) DO UPDATE SET value = c.value + excluded.value")                \
    /* enqueue */                                                                                 \
    X(KEY_GET, "SELECT k.job_id, k.args_hash, k.args_bytes, k.state, k.result, j.args"            \
               " FROM pawl_x_key k LEFT JOIN pawl_x_job j ON j.id = k.job_id"                     \
               " WHERE k.task_id = ?1 AND k.source = ?2 AND k.key = ?3")                          \
    X(KEY_ADD, "INSERT INTO pawl_x_key (task_id, source, key, job_id) VALUES (?1, ?2, ?3, ?4)")   \
    X(JOB_UNDO, "DELETE FROM pawl_x_job WHERE id = ?1") /* its key came by another transaction */ \
    X(JOB_ADD, "INSERT INTO pawl_x_job (task_id, queue_id, source, key, args, headers, trace,"    \
               " entity, version, priority, max_retries, run_at_us, expires_at_us, created_at_us,"\
               " root_id, gen, replay_of)"                                                        \
               " VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17)")            \
    X(READY_ADD, "INSERT INTO pawl_x_ready (task_id, queue_id, rank, run_at_us, id)"              \
                 " VALUES (?1, ?2, ?3, ?4, ?5)")                                                  \
    X(NEWEST, "SELECT max(id + 0) FROM pawl_x_job WHERE root_id = ?1")                            \
    X(STATE, "SELECT state, result FROM pawl_jobs WHERE id = ?1")                                 \
    /* choosing */                                                                                \
    X(FIRST, "SELECT queue_id, rank, run_at_us, id FROM pawl_x_ready WHERE task_id = ?1"          \
             " AND (queue_id, rank, run_at_us, id) > (?2, ?3, ?4, ?5) AND " DB_SANE               \
             " ORDER BY queue_id, rank, run_at_us, id LIMIT 1")                                   \
    X(NEXT_QUEUE, "SELECT min(queue_id) FROM pawl_x_ready WHERE task_id = ?1 AND queue_id > ?2")  \
    X(LEVEL, "SELECT rank, run_at_us, id FROM pawl_x_ready WHERE task_id = ?1 AND queue_id = ?2"  \
             " AND rank > ?3 AND " DB_SANE " ORDER BY rank, run_at_us, id LIMIT 1")               \
    /* no LIMIT ?: SQLite compiles such a statement anew whenever the limit is bound */           \
    X(DUE, "SELECT id, run_at_us, " DB_COUNTERS ", suspect FROM pawl_x_ready"                     \
           " WHERE task_id = ?1 AND queue_id = ?2 AND rank = ?3 AND run_at_us <= ?4"              \
           " AND (run_at_us, id) > (?5, ?6) AND " DB_SANE " ORDER BY run_at_us, id")              \
    X(SUSPECT, "SELECT queue_id, rank, id, run_at_us, " DB_COUNTERS ", suspect"                   \
               /* left to itself the planner walks all that waits of the task */                  \
               " FROM pawl_x_ready INDEXED BY pawl_x_ready_suspect"                               \
               " WHERE suspect = 1 AND task_id = ?1 AND run_at_us <= ?2 AND " DB_SANE             \
               " ORDER BY rank, run_at_us, id LIMIT 100")                                         \
    /* what is left: queues of what runs, of what waits for another run (such rows are moved) */  \
    X(RUNNING_OF, "SELECT DISTINCT queue_id FROM pawl_x_running WHERE task_id = ?1")              \
    X(RETRYING_OF, "SELECT DISTINCT queue_id FROM pawl_x_ready INDEXED BY pawl_x_ready_moved"     \
                   " WHERE moved = 1 AND task_id = ?1 AND runs > 0 AND run_at_us > ?2 AND "       \
                   DB_SANE)                                                                       \
    X(JOB_READ, "SELECT coalesce(root_id, id), gen, source, key, args, headers, trace, entity,"   \
                " version, max_retries, expires_at_us, created_at_us"                             \
                " FROM pawl_x_job WHERE id = ?1")                                                 \
    X(JOB_TASK, "SELECT task_id FROM pawl_x_job WHERE id = ?1")                                   \
    /* moving */                                                                                  \
    X(READY_TAKE, "DELETE FROM pawl_x_ready WHERE task_id = ?1 AND queue_id = ?2 AND rank = ?3"   \
                  " AND run_at_us = ?4 AND id = ?5 AND runs = ?6")                                \
    X(READY_PUT, "INSERT INTO pawl_x_ready (task_id, queue_id, rank, run_at_us, id, moved,"       \
                 " " DB_COUNTERS ", suspect) VALUES (?1,?2,?3,?4,?5,1,?6,?7,?8,?9,?10,?11)")      \
    X(RUNNING_PUT, "INSERT INTO pawl_x_running (job_id, lease_id, worker, token, started_at_us,"  \
                   " task_id, queue_id, rank, run_at_us, " DB_COUNTERS ", suspect)"               \
                   " VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15)")                \
    /* the fence: exactly one row, or somebody else has decided */                                \
    X(FENCE, "DELETE FROM pawl_x_running WHERE job_id = ?1 AND lease_id = ?2")                    \
    X(DONE_PUT, "INSERT INTO pawl_x_done (job_id, outcome, lease_id, worker, started_at_us,"      \
                " ended_at_us, " DB_COUNTERS ", result) VALUES"                                   \
                                             " (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)")         \
    X(DEAD_PUT, "INSERT INTO pawl_x_dead (job_id, class, reason, error, worker, ended_at_us,"     \
                " " DB_COUNTERS ") VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11)")                  \
    X(DROPPED_PUT, "INSERT INTO pawl_x_dropped (job_id, outcome, reason, error, worker,"          \
                   " ended_at_us, " DB_COUNTERS ", replayed_as)"                                  \
                   " VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)")                            \
    X(CANCELLED_PUT, "INSERT INTO pawl_x_cancelled (job_id, reason, ended_at_us, " DB_COUNTERS ")"\
                     " VALUES (?1,?2,?3,?4,?5,?6,?7,?8)")                                         \
    X(ATTEMPT_PUT, "INSERT INTO pawl_x_attempt (job_id, n, lease_id, outcome, worker, host,"      \
                   " build, started_at_us, ended_at_us, exit_code, signal, max_rss_kib,"          \
                   " delay_us, error, out_tail, err_tail) VALUES"                                 \
                   " (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16)")                   \
    X(ATTEMPT_TRIM, "DELETE FROM pawl_x_attempt WHERE job_id = ?1 AND n <= ?2")                   \
    X(DONE_BY, "SELECT 1 FROM pawl_x_done WHERE job_id = ?1 AND lease_id = ?2")                   \
    X(ATTEMPT_BY, "SELECT 1 FROM pawl_x_attempt WHERE job_id = ?1 AND lease_id = ?2"              \
                  " AND outcome <> 'cancelled'") /* that one its worker did not write */          \
    X(ATTEMPT_CUT, "INSERT INTO pawl_x_attempt (job_id, n, lease_id, outcome, worker,"            \
                   " started_at_us, ended_at_us) SELECT job_id, runs + 1, lease_id, 'cancelled'," \
                   " worker, started_at_us, ?2 FROM pawl_x_running WHERE job_id = ?1")            \
    X(HELD, "SELECT job_id FROM pawl_x_running WHERE worker = ?1 ORDER BY job_id")                \
    X(HELD_BY, "SELECT 1 FROM pawl_x_running WHERE job_id = ?1 AND lease_id = ?2")                \
    /* the version guard */                                                                       \
    X(VERSION_GET, "SELECT v.version, v.args_hash, v.args_bytes, j.args FROM pawl_x_version v"    \
                   " LEFT JOIN pawl_x_job j ON j.id = v.job_id"                                   \
                   " WHERE v.task_id = ?1 AND v.entity = ?2")                                     \
    X(VERSION_PUT, "INSERT INTO pawl_x_version AS v (task_id, entity, version, job_id, args_hash,"\
                   " args_bytes) VALUES (?1,?2,?3,?4,?5,?6)"                                      \
                   " ON CONFLICT (task_id, entity) DO UPDATE"                                     \
                   " SET version = excluded.version, job_id = excluded.job_id,"                   \
                   " args_hash = excluded.args_hash, args_bytes = excluded.args_bytes"            \
                   " WHERE v.version < excluded.version")                                         \
    /* people */                                                                                  \
    X(FIND_READY, "SELECT r.task_id, r.queue_id, r.rank, r.run_at_us, " DB_COUNTERS ", suspect"   \
                  " FROM pawl_x_ready r JOIN pawl_x_job j ON j.id = ?1"                           \
                  " WHERE r.task_id = j.task_id"                                                  \
                  " AND r.queue_id = j.queue_id AND r.rank = -j.priority"                         \
                  " AND r.run_at_us = j.run_at_us AND r.id = j.id")                               \
    X(FIND_MOVED, "SELECT task_id, queue_id, rank, run_at_us, " DB_COUNTERS ", suspect"           \
                  " FROM pawl_x_ready WHERE id = ?1 AND moved = 1")                               \
    X(READY_RUN_NOW, "UPDATE pawl_x_ready SET run_at_us = ?6, moved = 1 WHERE task_id = ?1"       \
                     " AND queue_id = ?2 AND rank = ?3 AND run_at_us = ?4 AND id = ?5")           \
    X(RUNNING_GET, "SELECT lease_id, " DB_COUNTERS " FROM pawl_x_running WHERE job_id = ?1")      \
    X(DEAD_GET, "SELECT d.replayed_as, j.gen, coalesce(j.root_id, j.id), j.task_id, j.queue_id,"  \
                " j.source, j.key, j.args, j.headers, j.trace, j.entity, j.version, j.priority,"  \
                " j.max_retries FROM pawl_x_dead d JOIN pawl_x_job j ON j.id = d.job_id"          \
                " WHERE d.job_id = ?1")                                                           \
    X(DEAD_REPLAYED, "UPDATE pawl_x_dead SET replayed_as = ?2, replay_reason = ?3"                \
                     " WHERE job_id = ?1 AND replayed_as IS NOT DISTINCT FROM ?4")                \
    X(DEAD_TAKE, "DELETE FROM pawl_x_dead WHERE job_id = ?1"                                      \
                 " RETURNING error, worker, " DB_COUNTERS ", replayed_as")                        \
    /* recovery */                                                                                \
    X(WORKERS, "SELECT DISTINCT worker FROM pawl_x_running WHERE ?1 > 0 AND ?2 = 1")              \
    X(ROWS_OF, DB_ROWS_OF)                                                                        \
    X(ROWS_OF_DEAD, DB_ROWS_OF)                                                                   \
    X(BLAME_PUT, "INSERT INTO pawl_x_blame (nonce, read_at_us) VALUES (?1, ?2)"                   \
                 " ON CONFLICT (nonce) DO NOTHING")                                               \
    X(BLAME_TRIM, "DELETE FROM pawl_x_blame WHERE read_at_us < ?1")

enum q_id {
#define Q_ENUM(name, text) Q_##name,
    Q_TABLE(Q_ENUM)
#undef Q_ENUM
    Q_N
};

#endif

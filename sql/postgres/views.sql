-- Views: the contract for who reads. Created anew whole on every migrate, so this file is always
-- the truth. doc/schema.md describes each column.
DROP VIEW IF EXISTS pawl.jobs, pawl.attempts, pawl.queues, pawl.tasks;

CREATE VIEW pawl.jobs AS
SELECT j.id, coalesce(j.root_id, j.id) AS root_id, j.gen, j.replay_of, coalesce(d.replayed_as,
    x.replayed_as) AS replayed_as,
       t.name AS task, q.name AS queue, j.source, j.key,
       CASE WHEN o.job_id IS NOT NULL THEN 'done'
            WHEN d.job_id IS NOT NULL THEN 'dead'
            WHEN x.job_id IS NOT NULL THEN 'dropped'
            WHEN c.job_id IS NOT NULL THEN 'cancelled'
            WHEN r.job_id IS NOT NULL THEN 'running'
            ELSE 'ready' END AS state,
       coalesce(o.outcome, x.outcome) AS outcome, d.class AS dead_class,
       coalesce(d.reason, x.reason, c.reason) AS reason, coalesce(d.error, x.error) AS error,
       j.args, j.headers, j.trace, j.entity, j.version, j.serial, j.priority, j.max_retries,
       j.created_at_us, coalesce(w.run_at_us, m.run_at_us, r.run_at_us, j.run_at_us) AS run_at_us,
       j.expires_at_us, coalesce(r.started_at_us, o.started_at_us) AS started_at_us,
       coalesce(o.ended_at_us, d.ended_at_us, x.ended_at_us, c.ended_at_us) AS ended_at_us,
       coalesce(w.runs, m.runs, r.runs, o.runs, d.runs, x.runs, c.runs, 0) AS runs,
       coalesce(w.failures, m.failures, r.failures, o.failures, d.failures, x.failures, c.failures,
           0) AS failures,
       coalesce(w.lost, m.lost, r.lost, o.lost, d.lost, x.lost, c.lost, 0) AS lost,
       coalesce(w.releases, m.releases, r.releases, o.releases, d.releases, x.releases, c.releases,
           0) AS releases,
       coalesce(w.snoozes, m.snoozes, r.snoozes, o.snoozes, d.snoozes, x.snoozes, c.snoozes, 0)
           AS snoozes,
       coalesce(w.suspect, m.suspect, r.suspect, 0) AS suspect,
       coalesce(r.worker, o.worker, d.worker, x.worker) AS worker, o.result
  FROM pawl.x_job j
  JOIN pawl.x_task t ON t.id = j.task_id
  JOIN pawl.x_queue q ON q.id = j.queue_id
  LEFT JOIN pawl.x_done o ON o.job_id = j.id
  LEFT JOIN pawl.x_dead d ON d.job_id = j.id
  LEFT JOIN pawl.x_dropped x ON x.job_id = j.id
  LEFT JOIN pawl.x_cancelled c ON c.job_id = j.id
  LEFT JOIN pawl.x_running r ON r.job_id = j.id
  LEFT JOIN pawl.x_ready w ON w.task_id = j.task_id AND w.queue_id = j.queue_id
        AND w.rank = -j.priority AND w.run_at_us = j.run_at_us AND w.id = j.id
  LEFT JOIN pawl.x_ready m ON m.id = j.id AND m.moved = 1;

CREATE VIEW pawl.attempts AS
SELECT job_id, n, outcome, worker, host, build, started_at_us, ended_at_us, exit_code, signal,
       max_rss_kib, delay_us, error, out_tail, err_tail
  FROM pawl.x_attempt;

CREATE VIEW pawl.queues AS SELECT id, name, paused FROM pawl.x_queue;

CREATE VIEW pawl.tasks AS
SELECT t.id, t.name, t.policy, q.name AS queue, t.priority, t.paused
  FROM pawl.x_task t LEFT JOIN pawl.x_queue q ON q.id = t.queue_id;

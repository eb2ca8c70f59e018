-- Views and triggers: the contract for SQL users. Re-created whole on every migrate, so this file
-- is
-- always the truth. doc/schema.md describes each column. Written for SQLite 3.40 and later.
DROP VIEW IF EXISTS pawl_jobs;
DROP VIEW IF EXISTS pawl_attempts;
DROP VIEW IF EXISTS pawl_queues;
DROP VIEW IF EXISTS pawl_tasks;
DROP VIEW IF EXISTS pawl_last;
DROP VIEW IF EXISTS pawl_enqueue;

CREATE VIEW pawl_jobs AS
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
  FROM pawl_x_job j
  JOIN pawl_x_task t ON t.id = j.task_id
  JOIN pawl_x_queue q ON q.id = j.queue_id
  LEFT JOIN pawl_x_done o ON o.job_id = j.id
  LEFT JOIN pawl_x_dead d ON d.job_id = j.id
  LEFT JOIN pawl_x_dropped x ON x.job_id = j.id
  LEFT JOIN pawl_x_cancelled c ON c.job_id = j.id
  LEFT JOIN pawl_x_running r ON r.job_id = j.id
  LEFT JOIN pawl_x_ready w ON w.task_id = j.task_id AND w.queue_id = j.queue_id
        AND w.rank = -j.priority AND w.run_at_us = j.run_at_us AND w.id = j.id
  LEFT JOIN pawl_x_ready m ON m.id = j.id AND m.moved = 1;

CREATE VIEW pawl_attempts AS
SELECT job_id, n, outcome, worker, host, build, started_at_us, ended_at_us, exit_code, signal,
       max_rss_kib, delay_us, error, out_tail, err_tail
  FROM pawl_x_attempt;

CREATE VIEW pawl_queues AS SELECT id, name, paused FROM pawl_x_queue;

CREATE VIEW pawl_tasks AS
SELECT t.id, t.name, t.policy, q.name AS queue, t.priority, t.paused
  FROM pawl_x_task t LEFT JOIN pawl_x_queue q ON q.id = t.queue_id;

-- The answer to the last INSERT INTO pawl_enqueue, in the same transaction.
CREATE VIEW pawl_last AS SELECT id, created FROM pawl_x_last WHERE id IS NOT NULL;

-- The plain-SQL door: INSERT INTO pawl_enqueue(task, args, key, ...) inside your own transaction.
CREATE VIEW pawl_enqueue AS
SELECT t.name AS task, j.args, j.key, j.source, q.name AS queue, j.priority,
       j.run_at_us AS run_at, j.expires_at_us AS expires_at, j.max_retries, j.entity, j.version,
       j.headers, j.trace
  FROM pawl_x_job j JOIN pawl_x_task t ON t.id = j.task_id JOIN pawl_x_queue q ON q.id = j.queue_id;

-- Every insert below carries its own ON CONFLICT: an OR clause of the caller (INSERT OR REPLACE)
-- would otherwise rule inside a trigger. Everything that a constraint could refuse is refused first
-- by RAISE, which no OR clause softens. 8640..us: microseconds of a day; 2440587.5: 1970 in julian
-- days.
CREATE TRIGGER pawl_enqueue_insert INSTEAD OF INSERT ON pawl_enqueue
BEGIN
    SELECT RAISE(ABORT, 'pawl: task must be 1..64 of [a-z0-9._-], beginning with a letter or digit')
     WHERE typeof(NEW.task) <> 'text' OR length(CAST(NEW.task AS BLOB)) NOT BETWEEN 1 AND 64
        OR length(CAST(NEW.task AS BLOB)) <> length(NEW.task)
        OR NEW.task GLOB '*[^a-z0-9._-]*' OR NEW.task NOT GLOB '[a-z0-9]*';
    SELECT RAISE(ABORT,
        'pawl: queue must be 1..64 of [a-z0-9._-], beginning with a letter or digit')
     WHERE NEW.queue IS NOT NULL AND (typeof(NEW.queue) <> 'text'
        OR length(CAST(NEW.queue AS BLOB)) NOT BETWEEN 1 AND 64
        OR length(CAST(NEW.queue AS BLOB)) <> length(NEW.queue)
        OR NEW.queue GLOB '*[^a-z0-9._-]*' OR NEW.queue NOT GLOB '[a-z0-9]*');
    SELECT RAISE(ABORT, 'pawl: args must be JSON text')
     WHERE NEW.args IS NOT NULL AND (typeof(NEW.args) <> 'text' OR NOT json_valid(NEW.args)
        OR instr(NEW.args, char(0)) > 0);
    SELECT RAISE(ABORT, 'pawl: args are larger than 1 MiB')
     WHERE length(CAST(NEW.args AS BLOB)) > 1048576;
    SELECT RAISE(ABORT, 'pawl: key must be 1..255 bytes of text without control characters')
     WHERE NEW.key IS NOT NULL AND (typeof(NEW.key) <> 'text'
        OR length(CAST(NEW.key AS BLOB)) NOT BETWEEN 1 AND 255 OR instr(NEW.key, char(0)) > 0
        OR NEW.key GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*');
    SELECT RAISE(ABORT, 'pawl: source must be 0..255 bytes of text without control characters')
     WHERE NEW.source IS NOT NULL AND (typeof(NEW.source) <> 'text'
        OR length(CAST(NEW.source AS BLOB)) > 255 OR instr(NEW.source, char(0)) > 0
        OR NEW.source GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*');
    SELECT RAISE(ABORT, 'pawl: entity must be 1..255 bytes of text without control characters')
     WHERE NEW.entity IS NOT NULL AND (typeof(NEW.entity) <> 'text'
        OR length(CAST(NEW.entity AS BLOB)) NOT BETWEEN 1 AND 255 OR instr(NEW.entity, char(0)) > 0
        OR NEW.entity GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*');
    SELECT RAISE(ABORT, 'pawl: version must be a 64-bit integer, and needs an entity')
     WHERE NEW.version IS NOT NULL AND (typeof(NEW.version) <> 'integer' OR NEW.entity IS NULL);
    SELECT RAISE(ABORT, 'pawl: entity needs a version')
     WHERE NEW.entity IS NOT NULL AND NEW.version IS NULL;
    SELECT RAISE(ABORT, 'pawl: priority must be an integer from -100 to 100')
     WHERE NEW.priority IS NOT NULL AND (typeof(NEW.priority) <> 'integer'
        OR NEW.priority NOT BETWEEN -100 AND 100);
    SELECT RAISE(ABORT, 'pawl: max_retries must be an integer from 0 to 1000')
     WHERE NEW.max_retries IS NOT NULL AND (typeof(NEW.max_retries) <> 'integer'
        OR NEW.max_retries NOT BETWEEN 0 AND 1000);
    SELECT RAISE(ABORT, 'pawl: headers must be a JSON object of strings of at most 16 KiB')
     WHERE NEW.headers IS NOT NULL AND (typeof(NEW.headers) <> 'text' OR NOT json_valid(NEW.headers)
        OR length(CAST(NEW.headers AS BLOB)) > 16384 OR instr(NEW.headers, char(0)) > 0
        OR json_type(NEW.headers) <> 'object'
        OR EXISTS (SELECT 1 FROM json_each(NEW.headers) h WHERE h.type <> 'text'));
    SELECT RAISE(ABORT, 'pawl: trace must be 1..255 bytes of text without control characters')
     WHERE NEW.trace IS NOT NULL AND (typeof(NEW.trace) <> 'text'
         OR length(CAST(NEW.trace AS BLOB)) NOT BETWEEN 1 AND 255 OR instr(NEW.trace, char(0)) > 0
         OR NEW.trace GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*');
    -- Character by character where there is more than ASCII: SQLite reads anything, but writes
    -- UTF-8 only, so what is well-formed comes back as it was (but for two that it never writes).
    SELECT RAISE(ABORT, 'pawl: key, source, entity, trace and headers must be UTF-8')
      FROM (SELECT coalesce(NEW.key, '') || ' ' || coalesce(NEW.source, '') || ' '
                || coalesce(NEW.entity, '') || ' ' || coalesce(NEW.trace, '') || ' '
                || coalesce(NEW.headers, '') AS x) n
     WHERE n.x GLOB '*[^' || char(1) || '-' || char(127) || ']*'
       AND EXISTS (WITH RECURSIVE c(ch, rest) AS (
                       SELECT substr(n.x, 1, 1), substr(n.x, 2)
                       UNION ALL
                       SELECT substr(rest, 1, 1), substr(rest, 2) FROM c WHERE rest <> '')
                   SELECT 1 FROM c WHERE hex(ch) <> hex(char(unicode(ch)))
                      AND hex(ch) NOT IN ('EFBFBE', 'EFBFBF'));
    -- Times: integer microseconds since 1970, or RFC 3339 with a zone. SQLite would take 30
    -- February; its own zones end at 14 hours, and it rounds the last microsecond of 9999 away.
    SELECT RAISE(ABORT,
        'pawl: run_at looks like seconds or milliseconds; give microseconds since 1970')
     WHERE typeof(NEW.run_at) = 'integer' AND NEW.run_at BETWEEN 0 AND 99999999999999;
    SELECT RAISE(ABORT,
        'pawl: run_at must be microseconds since 1970 or RFC 3339 with a zone, up to 9999')
     WHERE NEW.run_at IS NOT NULL AND NOT CASE typeof(NEW.run_at)
        WHEN 'integer' THEN NEW.run_at BETWEEN 0 AND 253402300799999999
        WHEN 'text'
            THEN NEW.run_at GLOB
                '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9][Tt ][0-9][0-9]:[0-9][0-9]:[0-9][0-9]*'
             AND (substr(NEW.run_at, -1) IN ('Z', 'z')
                 OR (substr(NEW.run_at, -6) GLOB '[+-][0-9][0-9]:[0-9][0-9]'
                     AND substr(NEW.run_at, -5, 2) <= '23'
                     AND substr(NEW.run_at, -2) <= '59'))
             AND substr(NEW.run_at, 1, 4) >= '1970'
             AND date(substr(NEW.run_at, 1, 10), '+0 days') IS substr(NEW.run_at, 1, 10)
             AND substr(NEW.run_at, 12, 2) <= '23'
             AND time(substr(NEW.run_at, 12, 8)) IS NOT NULL
             AND rtrim(substr(NEW.run_at, 20, length(NEW.run_at) - 20
                 - 5 * (substr(NEW.run_at, -1) NOT IN ('Z', 'z'))), '0123456789') IN ('', '.')
             AND substr(NEW.run_at, 20) NOT GLOB '[0-9]*'
             AND substr(NEW.run_at, 20) NOT GLOB '.[^0-9]*'
        ELSE 0 END;
    SELECT RAISE(ABORT,
        'pawl: expires_at looks like seconds or milliseconds; give microseconds since 1970')
     WHERE typeof(NEW.expires_at) = 'integer' AND NEW.expires_at BETWEEN 0 AND 99999999999999;
    SELECT RAISE(ABORT,
        'pawl: expires_at must be microseconds since 1970 or RFC 3339 with a zone, up to 9999')
     WHERE NEW.expires_at IS NOT NULL AND NOT CASE typeof(NEW.expires_at)
        WHEN 'integer' THEN NEW.expires_at BETWEEN 0 AND 253402300799999999
        WHEN 'text'
            THEN NEW.expires_at GLOB
                '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9][Tt ][0-9][0-9]:[0-9][0-9]:[0-9][0-9]*'
             AND (substr(NEW.expires_at, -1) IN ('Z', 'z')
                 OR (substr(NEW.expires_at, -6) GLOB '[+-][0-9][0-9]:[0-9][0-9]'
                     AND substr(NEW.expires_at, -5, 2) <= '23'
                     AND substr(NEW.expires_at, -2) <= '59'))
             AND substr(NEW.expires_at, 1, 4) >= '1970'
             AND date(substr(NEW.expires_at, 1, 10), '+0 days') IS substr(NEW.expires_at, 1, 10)
             AND substr(NEW.expires_at, 12, 2) <= '23'
             AND time(substr(NEW.expires_at, 12, 8)) IS NOT NULL
             AND rtrim(substr(NEW.expires_at, 20, length(NEW.expires_at) - 20
                 - 5 * (substr(NEW.expires_at, -1) NOT IN ('Z', 'z'))), '0123456789') IN ('', '.')
             AND substr(NEW.expires_at, 20) NOT GLOB '[0-9]*'
             AND substr(NEW.expires_at, 20) NOT GLOB '.[^0-9]*'
        ELSE 0 END;

    INSERT INTO pawl_x_task (name, created_at_us)
    SELECT NEW.task, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000
     WHERE NOT EXISTS (SELECT 1 FROM pawl_x_task WHERE name = NEW.task)
        ON CONFLICT (name) DO NOTHING;
    INSERT INTO pawl_x_queue (name, created_at_us)
    SELECT n.name, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000
      FROM (SELECT coalesce(NEW.queue, (SELECT q.name FROM pawl_x_task t JOIN pawl_x_queue q
          ON q.id = t.queue_id
                                         WHERE t.name = NEW.task), 'default') AS name) n
     WHERE NOT EXISTS (SELECT 1 FROM pawl_x_queue WHERE name = n.name)
        ON CONFLICT (name) DO NOTHING;

    -- pawl_x_last serves as the trigger's variables: task, queue, times, and whether the key is
    -- new.
    UPDATE pawl_x_last SET
        task_id = (SELECT id FROM pawl_x_task WHERE name = NEW.task),
        queue_id = (SELECT id FROM pawl_x_queue WHERE name = coalesce(NEW.queue,
                       (SELECT q.name FROM pawl_x_task t JOIN pawl_x_queue q ON q.id = t.queue_id
                         WHERE t.name = NEW.task), 'default')),
        now_us = CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000,
        run_at_us = CASE typeof(NEW.run_at) WHEN 'integer' THEN NEW.run_at
            WHEN 'text' THEN 1000000 * (
                     CAST(strftime('%s', replace(substr(NEW.run_at, 1, 19), 't', 'T'))
                         AS INTEGER)
                     - CASE WHEN substr(NEW.run_at, -1) IN ('Z', 'z') THEN 0
                         ELSE CAST(substr(NEW.run_at, -6, 1) || '60' AS INTEGER)
                             * (substr(NEW.run_at, -5, 2) * 60
                                 + substr(NEW.run_at, -2)) END)
                 + CAST(substr(substr(NEW.run_at, 21, max(0, length(NEW.run_at) - 21
                     - 5 * (substr(NEW.run_at, -1) NOT IN ('Z', 'z')))) || '000000', 1, 6)
                         AS INTEGER) END,
        expires_at_us = CASE typeof(NEW.expires_at) WHEN 'integer' THEN NEW.expires_at
            WHEN 'text' THEN 1000000 * (
                     CAST(strftime('%s', replace(substr(NEW.expires_at, 1, 19), 't', 'T'))
                         AS INTEGER)
                     - CASE WHEN substr(NEW.expires_at, -1) IN ('Z', 'z') THEN 0
                         ELSE CAST(substr(NEW.expires_at, -6, 1) || '60' AS INTEGER)
                             * (substr(NEW.expires_at, -5, 2) * 60
                                 + substr(NEW.expires_at, -2)) END)
                 + CAST(substr(substr(NEW.expires_at, 21, max(0, length(NEW.expires_at) - 21
                     - 5 * (substr(NEW.expires_at, -1) NOT IN ('Z', 'z')))) || '000000', 1, 6)
                         AS INTEGER) END,
        id = (SELECT k.job_id FROM pawl_x_key k JOIN pawl_x_task t ON t.id = k.task_id
               WHERE t.name = NEW.task AND k.source = coalesce(NEW.source, '') AND k.key = NEW.key),
        created = 1
     WHERE one = 1;
    UPDATE pawl_x_last SET created = 0 WHERE one = 1 AND id IS NOT NULL;

    -- An offset can lead out of the range that the digits were in.
    SELECT RAISE(ABORT, 'pawl: run_at must be in 1970 to 9999, in UTC')
      FROM pawl_x_last WHERE run_at_us NOT BETWEEN 0 AND 253402300799999999;
    SELECT RAISE(ABORT, 'pawl: expires_at must be in 1970 to 9999, in UTC')
      FROM pawl_x_last WHERE expires_at_us NOT BETWEEN 0 AND 253402300799999999;
    SELECT RAISE(ABORT,
        'pawl: expires_at is not later than run_at, or than now: the job could never start')
      FROM pawl_x_last
     WHERE created = 1 AND expires_at_us <= max(coalesce(run_at_us, now_us), now_us);
    SELECT RAISE(ABORT, 'pawl: this key was used before with other args')
      FROM pawl_x_last l
      JOIN pawl_x_key k ON k.task_id = l.task_id AND k.source = coalesce(NEW.source, '')
          AND k.key = NEW.key
      LEFT JOIN pawl_x_job j ON j.id = k.job_id
     WHERE l.created = 0
       AND CASE WHEN k.args_hash IS NULL THEN j.args IS NOT coalesce(NEW.args, '{}')
                ELSE k.args_bytes <> length(CAST(coalesce(NEW.args, '{}') AS BLOB))
                  OR k.args_hash <> (
                     -- The same 62-bit hash as args_hash() in C, four bytes a step (the factors are
                     -- powers of 257 and 263, the fourth ones reduced). The whole text is touched
                     -- once per 512 bytes: ch is the hex of those and the next four, w of the four
                     -- in hand. Bytes are hi * 16 + lo + 1; instr finds no '0' and so answers 0.
                     WITH RECURSIVE h(i, n, h1, h2, w, ch) AS (
                         SELECT 0, length(CAST(coalesce(NEW.args, '{}') AS BLOB)), 0, 0,
                                hex(substr(CAST(coalesce(NEW.args, '{}') AS BLOB), 1, 4)),
                                CAST(hex(substr(CAST(coalesce(NEW.args, '{}') AS BLOB), 1, 516))
                                    AS BLOB)
                         UNION ALL
                         SELECT i + 4, n,
                                (h1 * 67503107
                                 + (instr('123456789ABCDEF', substr(w, 1, 1)) * 16
                                     + instr('123456789ABCDEF', substr(w, 2, 1)) + 1) * 16974593
                                 + (instr('123456789ABCDEF', substr(w, 3, 1)) * 16
                                     + instr('123456789ABCDEF', substr(w, 4, 1)) + 1) * 66049
                                 + (instr('123456789ABCDEF', substr(w, 5, 1)) * 16
                                     + instr('123456789ABCDEF', substr(w, 6, 1)) + 1) * 257
                                 + instr('123456789ABCDEF', substr(w, 7, 1)) * 16
                                     + instr('123456789ABCDEF', substr(w, 8, 1)) + 1) % 2147483647,
                                (h2 * 489383303
                                 + (instr('123456789ABCDEF', substr(w, 1, 1)) * 16
                                     + instr('123456789ABCDEF', substr(w, 2, 1)) + 1) * 18191447
                                 + (instr('123456789ABCDEF', substr(w, 3, 1)) * 16
                                     + instr('123456789ABCDEF', substr(w, 4, 1)) + 1) * 69169
                                 + (instr('123456789ABCDEF', substr(w, 5, 1)) * 16
                                     + instr('123456789ABCDEF', substr(w, 6, 1)) + 1) * 263
                                 + instr('123456789ABCDEF', substr(w, 7, 1)) * 16
                                     + instr('123456789ABCDEF', substr(w, 8, 1)) + 1) % 2147483629,
                                CAST(substr(ch, (i % 512 + 4) * 2 + 1, 8) AS TEXT),
                                CASE WHEN (i + 4) % 512 = 0
                                    THEN CAST(hex(substr(CAST(coalesce(NEW.args, '{}') AS BLOB),
                                                         i + 5, 516)) AS BLOB)
                                    ELSE ch END
                           FROM h WHERE i + 4 <= n),
                     -- the last zero to three bytes, one a step
                     t(i, n, h1, h2, w) AS (
                         SELECT i, n, h1, h2, w FROM h WHERE i = n - n % 4
                         UNION ALL
                         SELECT i + 1, n,
                                (h1 * 257 + instr('123456789ABCDEF', substr(w, 1, 1)) * 16
                                     + instr('123456789ABCDEF', substr(w, 2, 1)) + 1) % 2147483647,
                                (h2 * 263 + instr('123456789ABCDEF', substr(w, 1, 1)) * 16
                                     + instr('123456789ABCDEF', substr(w, 2, 1)) + 1) % 2147483629,
                                substr(w, 3)
                           FROM t WHERE i < n)
                     SELECT (h1 << 31) | h2 FROM t WHERE i = n) END;

    INSERT INTO pawl_x_job (task_id, queue_id, source, key, args, headers, trace, entity, version,
                            priority, max_retries, run_at_us, expires_at_us, created_at_us)
    SELECT l.task_id, l.queue_id, coalesce(NEW.source, ''), NEW.key, coalesce(NEW.args, '{}'),
        NEW.headers,
           NEW.trace, NEW.entity, NEW.version,
           coalesce(NEW.priority, (SELECT priority FROM pawl_x_task WHERE id = l.task_id)),
           NEW.max_retries,
           -- long ago is long ago: as the command stores it
           coalesce(max(l.run_at_us, 100000000000000), l.now_us), l.expires_at_us, l.now_us
      FROM pawl_x_last l WHERE l.one = 1 AND l.created = 1
        ON CONFLICT (id) DO NOTHING;
    UPDATE pawl_x_last SET id = (SELECT max(id) FROM pawl_x_job) WHERE one = 1 AND created = 1;
    INSERT INTO pawl_x_ready (task_id, queue_id, rank, run_at_us, id)
    SELECT j.task_id, j.queue_id, -j.priority, j.run_at_us, j.id
      FROM pawl_x_last l JOIN pawl_x_job j ON j.id = l.id
     WHERE l.one = 1 AND l.created = 1
        ON CONFLICT (task_id, queue_id, rank, run_at_us, id) DO NOTHING;
    INSERT INTO pawl_x_key (task_id, source, key, job_id)
    SELECT l.task_id, coalesce(NEW.source, ''), NEW.key, l.id
      FROM pawl_x_last l WHERE l.one = 1 AND l.created = 1 AND NEW.key IS NOT NULL
        ON CONFLICT (task_id, source, key) DO NOTHING;
    INSERT INTO pawl_x_counter (name, value)
    SELECT 'duplicates', 1 FROM pawl_x_last WHERE one = 1 AND created = 0
        ON CONFLICT (name) DO UPDATE SET value = value + 1;
    -- A duplicate is told the newest job of its root.
    UPDATE pawl_x_last SET id = (SELECT max(id) FROM pawl_x_job WHERE root_id = pawl_x_last.id)
     WHERE one = 1 AND created = 0
       AND EXISTS (SELECT 1 FROM pawl_x_job WHERE root_id = pawl_x_last.id);
END;

CREATE TRIGGER pawl_enqueue_update INSTEAD OF UPDATE ON pawl_enqueue
BEGIN
    SELECT RAISE(ABORT, 'pawl: jobs cannot be changed by SQL; use the pawl command');
END;
CREATE TRIGGER pawl_enqueue_delete INSTEAD OF DELETE ON pawl_enqueue
BEGIN
    SELECT RAISE(ABORT, 'pawl: jobs cannot be deleted by SQL; use pawl cancel');
END;

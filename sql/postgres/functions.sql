-- Functions: the contract for who writes by SQL. Created anew whole on every migrate, so this file
-- is always the truth. OR REPLACE, never DROP: grants stay, and so does who depends on them. Where
-- a later version gives a function other parameters, its migration drops the old one first.
--
-- No block has an EXCEPTION part: that is a subtransaction, and many of them in one transaction
-- slow down the whole server. Names are qualified and search_path is fixed, because some run with
-- the rights of the owner. Backslashes stand in E'' only: a caller may have switched
-- standard_conforming_strings off. Texts are compared in COLLATE "C", said each time: parameters
-- come with the collations of the caller's columns.
--
-- What a rule refuses begins with 'pawl: ' and has SQLSTATE 22023 (22P02 where a text is not JSON);
-- PWKEY: the key was used with other args; PWFEN, PWDON, PWVER: see complete.

-- More than 64 arrays and objects inside each other? Few brackets need no look; otherwise the
-- strings go, then all but the brackets, then 64 times the innermost pairs: replace() takes one
-- level a time.
CREATE OR REPLACE FUNCTION pawl.x_too_deep(value text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    rest text COLLATE "C" := value;
BEGIN
    IF length(rest) - length(translate(rest, '[{', '')) <= 64 THEN
        RETURN false;
    END IF;
    rest := regexp_replace(rest, E'"(?:[^"\\\\]|\\\\.)*"', '', 'g');
    rest := translate(regexp_replace(rest, '[^][{}]+', '', 'g'), '{}', '[]');
    FOR level IN 1..64 LOOP
        EXIT WHEN rest = '';
        rest := replace(rest, '[]', '');
    END LOOP;
    RETURN rest <> '';
END $$;

-- Refuse what is not JSON text at most 64 deep. Before version 16 a server cannot be asked without
-- failing, so there it is the server's own refusal, with the same SQLSTATE.
CREATE OR REPLACE FUNCTION pawl.x_check_json(what text, value text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    checked json;
BEGIN
    IF pawl.x_too_deep(value) THEN
        RAISE EXCEPTION 'pawl: % must be JSON text at most 64 deep', what
            USING ERRCODE = '22023';
    ELSIF current_setting('server_version_num')::integer < 160000 THEN
        checked := value::json;
    ELSIF NOT pg_input_is_valid(value, 'json') THEN
        RAISE EXCEPTION 'pawl: % must be JSON text', what USING ERRCODE = '22P02',
            DETAIL = (SELECT coalesce(i.detail, i.message)
                        FROM pg_input_error_info(value, 'json') AS i);
    END IF;
END $$;

-- The same 62-bit hash as args_hash() in C and as the SQLite trigger's, four bytes a step: the
-- factors are powers of 257 and 263, the fourth ones reduced.
CREATE OR REPLACE FUNCTION pawl.x_args_hash(args text) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bytes CONSTANT bytea NOT NULL := convert_to(args, 'UTF8');
    n CONSTANT integer NOT NULL := length(bytes);
    i integer := 0;
    a bigint; b bigint; c bigint; d bigint;
    h1 bigint := 0;
    h2 bigint := 0;
BEGIN
    WHILE i + 4 <= n LOOP
        a := get_byte(bytes, i) + 1;
        b := get_byte(bytes, i + 1) + 1;
        c := get_byte(bytes, i + 2) + 1;
        d := get_byte(bytes, i + 3) + 1;
        h1 := (h1 * 67503107 + a * 16974593 + b * 66049 + c * 257 + d) % 2147483647;
        h2 := (h2 * 489383303 + a * 18191447 + b * 69169 + c * 263 + d) % 2147483629;
        i := i + 4;
    END LOOP;
    WHILE i < n LOOP
        h1 := (h1 * 257 + get_byte(bytes, i) + 1) % 2147483647;
        h2 := (h2 * 263 + get_byte(bytes, i) + 1) % 2147483629;
        i := i + 1;
    END LOOP;
    RETURN (h1 << 31) | h2;
END $$;

-- Enqueue inside the caller's transaction. Runs with the rights of the owner, so that a producer
-- needs none on the tables and cannot get around a rule. enable_seqscan: every look-up is by an
-- index, and a plan made while a table was small would be kept by the session while it grows.
CREATE OR REPLACE FUNCTION pawl.enqueue(
    task text, args text DEFAULT '{}', key text DEFAULT NULL, source text DEFAULT '',
    queue text DEFAULT NULL, priority integer DEFAULT NULL, run_at timestamptz DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL, max_retries integer DEFAULT NULL,
    entity text DEFAULT NULL, version bigint DEFAULT NULL, headers text DEFAULT NULL,
    trace text DEFAULT NULL, OUT id bigint, OUT created boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    control CONSTANT text := E'[\\x01-\\x1f\\x7f]';
    first_us CONSTANT bigint := 100000000000000;    -- 1973-03-03: before is long ago
    last_us CONSTANT bigint := 253402300799999999;  -- 9999-12-31
    now_us CONSTANT bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    run_us bigint;
    expires_us bigint;
    t record;
    k record;
    queue_no bigint;
BEGIN
    args := coalesce(enqueue.args, '{}');
    source := coalesce(enqueue.source, '');
    IF task IS NULL OR task COLLATE "C" !~ '^[a-z0-9][a-z0-9._-]{0,63}$' THEN
        RAISE EXCEPTION
            'pawl: task must be 1..64 of [a-z0-9._-], beginning with a letter or digit'
            USING ERRCODE = '22023';
    END IF;
    IF queue COLLATE "C" !~ '^[a-z0-9][a-z0-9._-]{0,63}$' THEN
        RAISE EXCEPTION
            'pawl: queue must be 1..64 of [a-z0-9._-], beginning with a letter or digit'
            USING ERRCODE = '22023';
    END IF;
    IF octet_length(args) > 1048576 THEN
        RAISE EXCEPTION 'pawl: args are larger than 1 MiB' USING ERRCODE = '22023';
    END IF;
    PERFORM pawl.x_check_json('args', args);
    IF octet_length(key) NOT BETWEEN 1 AND 255 OR key COLLATE "C" ~ control THEN
        RAISE EXCEPTION 'pawl: key must be 1..255 bytes of text without control characters'
            USING ERRCODE = '22023';
    END IF;
    IF octet_length(source) > 255 OR source COLLATE "C" ~ control THEN
        RAISE EXCEPTION 'pawl: source must be 0..255 bytes of text without control characters'
            USING ERRCODE = '22023';
    END IF;
    IF octet_length(entity) NOT BETWEEN 1 AND 255 OR entity COLLATE "C" ~ control THEN
        RAISE EXCEPTION 'pawl: entity must be 1..255 bytes of text without control characters'
            USING ERRCODE = '22023';
    END IF;
    IF version IS NOT NULL AND entity IS NULL THEN
        RAISE EXCEPTION 'pawl: version must be a 64-bit integer, and needs an entity'
            USING ERRCODE = '22023';
    END IF;
    IF entity IS NOT NULL AND version IS NULL THEN
        RAISE EXCEPTION 'pawl: entity needs a version' USING ERRCODE = '22023';
    END IF;
    IF priority NOT BETWEEN -100 AND 100 THEN
        RAISE EXCEPTION 'pawl: priority must be an integer from -100 to 100'
            USING ERRCODE = '22023';
    END IF;
    IF max_retries NOT BETWEEN 0 AND 1000 THEN
        RAISE EXCEPTION 'pawl: max_retries must be an integer from 0 to 1000'
            USING ERRCODE = '22023';
    END IF;
    -- What is JSON and has this shape is an object of strings. json_each() would refuse \u0000.
    IF headers IS NOT NULL THEN
        IF octet_length(headers) <= 16384 THEN
            PERFORM pawl.x_check_json('headers', headers);
        END IF;
        IF octet_length(headers) > 16384 OR headers COLLATE "C" !~
            E'^\\s*\\{\\s*(?:(?:"(?:[^"\\\\]|\\\\.)*"\\s*:\\s*"(?:[^"\\\\]|\\\\.)*"\\s*,\\s*)*'
             '"(?:[^"\\\\]|\\\\.)*"\\s*:\\s*"(?:[^"\\\\]|\\\\.)*"\\s*)?\\}\\s*$' THEN
            RAISE EXCEPTION 'pawl: headers must be a JSON object of strings of at most 16 KiB'
                USING ERRCODE = '22023';
        END IF;
    END IF;
    IF octet_length(trace) NOT BETWEEN 1 AND 255 OR trace COLLATE "C" ~ control THEN
        RAISE EXCEPTION 'pawl: trace must be 1..255 bytes of text without control characters'
            USING ERRCODE = '22023';
    END IF;
    IF isfinite(run_at) THEN
        run_us := (extract(epoch FROM run_at) * 1000000)::bigint;
    END IF;
    IF run_at IS NOT NULL AND coalesce(run_us NOT BETWEEN 0 AND last_us, true) THEN
        RAISE EXCEPTION 'pawl: run_at must be in 1970 to 9999, in UTC' USING ERRCODE = '22023';
    END IF;
    IF isfinite(expires_at) THEN
        expires_us := (extract(epoch FROM expires_at) * 1000000)::bigint;
    END IF;
    IF expires_at IS NOT NULL AND coalesce(expires_us NOT BETWEEN 0 AND last_us, true) THEN
        RAISE EXCEPTION 'pawl: expires_at must be in 1970 to 9999, in UTC'
            USING ERRCODE = '22023';
    END IF;

    -- Names are made at their first use. Who meets another's new name waits for that transaction;
    -- then the name is here, or it is ours to make.
    LOOP
        SELECT x.id, x.queue_id, x.priority INTO t FROM pawl.x_task AS x
         WHERE x.name = enqueue.task COLLATE "C";
        EXIT WHEN FOUND;
        INSERT INTO pawl.x_task (name, created_at_us) VALUES (enqueue.task, now_us)
            ON CONFLICT (name) DO NOTHING;
    END LOOP;
    queue_no := CASE WHEN enqueue.queue IS NULL THEN t.queue_id END;
    WHILE queue_no IS NULL LOOP
        SELECT x.id INTO queue_no FROM pawl.x_queue AS x
         WHERE x.name = coalesce(enqueue.queue, 'default') COLLATE "C";
        EXIT WHEN FOUND;
        INSERT INTO pawl.x_queue (name, created_at_us)
            VALUES (coalesce(enqueue.queue, 'default'), now_us) ON CONFLICT (name) DO NOTHING;
    END LOOP;

    -- The ledger decides, and is not read before it is written: two transactions with different
    -- keys never conflict then, not even when both are SERIALIZABLE. With the same key the second
    -- waits for the first; above READ COMMITTED it ends with 40001 if it cannot see what it waited
    -- for. An id that a duplicate drew is lost.
    id := nextval('pawl.x_job_id_seq');
    created := true;
    WHILE enqueue.key IS NOT NULL LOOP
        INSERT INTO pawl.x_key (task_id, source, key, job_id)
            VALUES (t.id, enqueue.source, enqueue.key, enqueue.id)
            ON CONFLICT (task_id, source, key) DO NOTHING;
        created := FOUND;
        EXIT WHEN created;
        SELECT x.job_id, x.args_hash, x.args_bytes, j.args INTO k
          FROM pawl.x_key AS x LEFT JOIN pawl.x_job AS j ON j.id = x.job_id
         WHERE x.task_id = t.id AND x.source = enqueue.source COLLATE "C"
           AND x.key = enqueue.key COLLATE "C";
        EXIT WHEN FOUND;    -- not found: prune took it away just now
    END LOOP;

    IF NOT created THEN
        IF (CASE WHEN k.args_hash IS NULL THEN k.args COLLATE "C" IS DISTINCT FROM enqueue.args
                 ELSE k.args_bytes <> octet_length(enqueue.args)
                   OR k.args_hash <> pawl.x_args_hash(enqueue.args) END) THEN
            RAISE EXCEPTION 'pawl: this key was used before with other args'
                USING ERRCODE = 'PWKEY', HINT = 'Send the same bytes, or a new key.',
                COLUMN = coalesce(current_setting('pawl.at', true), ''),
                DETAIL = format('Key "%s" of task %s belongs to job %s.', enqueue.key,
                                enqueue.task, k.job_id);
        END IF;
        -- A duplicate is told the newest job of its root (+ 0: max(id) alone is searched from the
        -- newest job of all down). It is counted in a row of this very transaction: one row for all
        -- would make each duplicate wait for the one before it.
        SELECT coalesce(max(j.id + 0), k.job_id) INTO id FROM pawl.x_job AS j
         WHERE j.root_id = k.job_id;
        INSERT INTO pawl.x_counter AS c (name, value)
            VALUES ('duplicates+' || pg_current_xact_id(), 1)
            ON CONFLICT (name) DO UPDATE SET value = c.value + 1;
        RETURN;
    END IF;

    -- Only of a new job: a request that was accepted in time is a duplicate for ever.
    IF expires_us <= greatest(run_us, now_us) THEN
        RAISE EXCEPTION
            'pawl: expires_at is not later than run_at, or than now: the job could never start'
            USING ERRCODE = '22023', COLUMN = coalesce(current_setting('pawl.at', true), '');
    END IF;
    run_us := CASE WHEN run_us IS NULL THEN now_us ELSE greatest(run_us, first_us) END;
    priority := coalesce(enqueue.priority, t.priority);
    INSERT INTO pawl.x_job (id, task_id, queue_id, source, key, args, headers, trace, entity,
                            version, priority, max_retries, run_at_us, expires_at_us, created_at_us)
        OVERRIDING SYSTEM VALUE
        VALUES (enqueue.id, t.id, queue_no, enqueue.source, enqueue.key, enqueue.args,
                enqueue.headers, enqueue.trace, enqueue.entity, enqueue.version, enqueue.priority,
                enqueue.max_retries, run_us, expires_us, now_us);
    INSERT INTO pawl.x_ready (task_id, queue_id, rank, run_at_us, id)
        VALUES (t.id, queue_no, -enqueue.priority, run_us, enqueue.id);
END $$;

-- The same for callers that have args and headers as json or jsonb. Of json the bytes are kept, of
-- jsonb what it prints.
CREATE OR REPLACE FUNCTION pawl.enqueue(
    task text, args json, key text DEFAULT NULL, source text DEFAULT '',
    queue text DEFAULT NULL, priority integer DEFAULT NULL, run_at timestamptz DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL, max_retries integer DEFAULT NULL,
    entity text DEFAULT NULL, version bigint DEFAULT NULL, headers json DEFAULT NULL,
    trace text DEFAULT NULL, OUT id bigint, OUT created boolean)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT e.id, e.created FROM pawl.enqueue($1, $2::text, $3, $4, $5, $6, $7, $8, $9, $10, $11,
                                             $12::text, $13) AS e
$$;

CREATE OR REPLACE FUNCTION pawl.enqueue(
    task text, args jsonb, key text DEFAULT NULL, source text DEFAULT '',
    queue text DEFAULT NULL, priority integer DEFAULT NULL, run_at timestamptz DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL, max_retries integer DEFAULT NULL,
    entity text DEFAULT NULL, version bigint DEFAULT NULL, headers jsonb DEFAULT NULL,
    trace text DEFAULT NULL, OUT id bigint, OUT created boolean)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT e.id, e.created FROM pawl.enqueue($1, $2::text, $3, $4, $5, $6, $7, $8, $9, $10, $11,
                                             $12::text, $13) AS e
$$;

-- Many requests with one statement, for pawl_enqueue_pg: all or none. Texts come as the bytes of
-- UTF-8, whatever the client_encoding, times as microseconds. Answers as the C door does; of the
-- job of a duplicate also the state, which only who brings the very request is told. pawl.at: the
-- one in hand, for a refusal to name; the setting ends with the call.
CREATE OR REPLACE FUNCTION pawl.x_enqueue_many(
    task bytea[], args bytea[], key bytea[], source bytea[], queue bytea[], priority integer[],
    run_at_us bigint[], expires_at_us bigint[], max_retries integer[], entity bytea[],
    version bigint[], headers bytea[], trace bytea[])
RETURNS TABLE (at bigint, id bigint, created boolean, known boolean, state text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET client_min_messages = error
SET pawl.at = '' AS $$
#variable_conflict use_column
DECLARE
    r record;
    name_now text COLLATE "C";
    dup_at bigint[]; dup_id bigint[]; dup_known boolean[];
BEGIN
    FOR r IN SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
        WITH ORDINALITY AS u (task, args, key, source, queue, priority, run_us, expires_us,
                              max_retries, entity, version, headers, trace, at)
    LOOP
        at := r.at;
        PERFORM set_config('pawl.at', r.at::text, true);
        SELECT e.id, e.created INTO id, created FROM pawl.enqueue(
            convert_from(r.task, 'UTF8'), convert_from(r.args, 'UTF8'), convert_from(r.key, 'UTF8'),
            convert_from(r.source, 'UTF8'), convert_from(r.queue, 'UTF8'), r.priority,
            to_timestamp((r.run_us / 1000000)::double precision)
                + (r.run_us % 1000000) * interval '1 microsecond',
            to_timestamp((r.expires_us / 1000000)::double precision)
                + (r.expires_us % 1000000) * interval '1 microsecond',
            r.max_retries, convert_from(r.entity, 'UTF8'), r.version,
            convert_from(r.headers, 'UTF8'), convert_from(r.trace, 'UTF8')) AS e;
        IF name_now IS DISTINCT FROM convert_from(r.task, 'UTF8') THEN
            name_now := convert_from(r.task, 'UTF8');
            known := EXISTS (SELECT FROM pawl.x_task AS t
                              WHERE t.name = name_now AND t.policy IS NOT NULL);
        END IF;
        IF created THEN
            state := 'ready';
            RETURN NEXT;
        ELSE
            dup_at := dup_at || at;
            dup_id := dup_id || id;
            dup_known := dup_known || known;
        END IF;
    END LOOP;
    -- All duplicates with one look. A pruned one is known by its key alone.
    RETURN QUERY
    SELECT d.at, d.id, false, d.known, coalesce(
               (SELECT j.state FROM pawl.jobs AS j WHERE j.id = d.id),
               (SELECT k.state FROM pawl.x_task AS t JOIN pawl.x_key AS k ON k.task_id = t.id
                 WHERE t.name = convert_from($1[d.at], 'UTF8') COLLATE "C"
                   AND k.source = coalesce(convert_from($4[d.at], 'UTF8'), '') COLLATE "C"
                   AND k.key = convert_from($3[d.at], 'UTF8') COLLATE "C"), 'pruned')
      FROM unnest(dup_at, dup_id, dup_known) AS d (at, id, known);
END $$;

-- The counted duplicates of ended transactions into one row. Called by prune.
CREATE OR REPLACE FUNCTION pawl.x_fold_counters() RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    WITH gone AS (DELETE FROM pawl.x_counter
                   WHERE name >= 'duplicates+' AND name < 'duplicates,' RETURNING value)
    INSERT INTO pawl.x_counter AS c (name, value)
    SELECT 'duplicates', sum(value)::bigint FROM gone HAVING count(*) > 0
        ON CONFLICT (name) DO UPDATE SET value = c.value + excluded.value
$$;

-- The lease of a run, as handlers get it: $PAWL_LEASE.
CREATE OR REPLACE FUNCTION pawl.x_lease(lease text) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF lease IS NULL OR lease COLLATE "C" !~ '^[0-9a-fA-F]{32}$' THEN
        RAISE EXCEPTION 'pawl: lease must be 32 hexadecimal digits, as PAWL_LEASE has them'
            USING ERRCODE = '22023';
    END IF;
    RETURN decode(lease, 'hex');
END $$;

-- No running row with this lease: say which of the two it is.
CREATE OR REPLACE FUNCTION pawl.x_refuse_lease(job bigint, lease_id bytea) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM pawl.x_done AS d
                WHERE d.job_id = x_refuse_lease.job AND d.lease_id = x_refuse_lease.lease_id) THEN
        RAISE EXCEPTION 'pawl: job % is done, by this very run', job USING ERRCODE = 'PWDON',
            HINT = 'Roll back and end with success: an earlier commit went through.';
    END IF;
    IF EXISTS (SELECT FROM pawl.x_running AS r WHERE r.job_id = x_refuse_lease.job
                  AND r.lease_id = x_refuse_lease.lease_id AND r.said IS NOT NULL) THEN
        RAISE EXCEPTION 'pawl: job % has failed, by this very run', job USING ERRCODE = 'PWDON',
            HINT = 'Roll back and end with success: an earlier pawl.fail went through.';
    END IF;
    RAISE EXCEPTION 'pawl: job % is not leased to this run', coalesce(job::text, 'NULL')
        USING ERRCODE = 'PWFEN',
        HINT = 'Roll back: it was cancelled, taken over, or settled otherwise.';
END $$;

-- For a handler with a connection of its own, first in its transaction: refuses when the run has
-- lost its job. Holds the job until the transaction ends: a cancel or a takeover comes before or
-- after. (Quoted, since psql takes a bare BEGIN in a CREATE FUNCTION for the start of its body.)
CREATE OR REPLACE FUNCTION pawl."begin"(job bigint, lease text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    mine CONSTANT bytea NOT NULL := pawl.x_lease(lease);
BEGIN
    PERFORM FROM pawl.x_running AS r WHERE r.job_id = job AND r.lease_id = mine
       AND r.said IS NULL FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM pawl.x_refuse_lease(job, mine);
    END IF;
END $$;

-- The same handler, last in its transaction: effect and acknowledgement are one commit. The fence
-- is the deletion of the running row: exactly one, or the transaction is refused (PWFEN), also one
-- that comes again after a commit whose answer was lost (PWDON). Advances the version guard, and
-- refuses what is not newer than what was applied (PWVER).
CREATE OR REPLACE FUNCTION pawl.complete(job bigint, lease text, result text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    mine CONSTANT bytea NOT NULL := pawl.x_lease(lease);
    now_us CONSTANT bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    r pawl.x_running;
    j record;
    rule text;
    plain text;
BEGIN
    IF octet_length(result) > 262144 THEN
        RAISE EXCEPTION 'pawl: result is larger than 256 KiB' USING ERRCODE = '22023';
    ELSIF result IS NOT NULL THEN
        PERFORM pawl.x_check_json('result', result);
    END IF;
    DELETE FROM pawl.x_running AS x WHERE x.job_id = complete.job AND x.lease_id = mine
           AND x.said IS NULL RETURNING x.* INTO r;
    IF NOT FOUND THEN
        PERFORM pawl.x_refuse_lease(job, mine);
    END IF;

    SELECT x.entity, x.version, x.args, t.policy INTO STRICT j
      FROM pawl.x_job AS x JOIN pawl.x_task AS t ON t.id = x.task_id WHERE x.id = complete.job;
    -- What the enqueue did not say, the policy takes out of the args. The claim has checked them.
    rule := substring(j.policy COLLATE "C" FROM E'(?:^|\\n)entity = :([^\\n]+)');
    IF j.entity IS NULL AND rule IS NOT NULL THEN
        -- json ->> reads the whole text, and fails at what is no text of the server's anywhere in
        -- it: \u0000, half a surrogate pair. They are not in these two. (Kept: other escapes.)
        plain := regexp_replace(j.args COLLATE "C", '(\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}'
            || '\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})',
            '\1', 'g');
        j.entity := plain::json ->> rule;
        j.version := (plain::json ->> substring(
            j.policy COLLATE "C" FROM E'(?:^|\\n)version = :([^\\n]+)'))::bigint;
    END IF;
    IF j.entity IS NOT NULL THEN
        INSERT INTO pawl.x_version AS v (task_id, entity, version, job_id, args_hash, args_bytes)
            VALUES (r.task_id, j.entity, j.version, r.job_id, pawl.x_args_hash(j.args),
                    octet_length(j.args))
            ON CONFLICT (task_id, entity) DO UPDATE
            SET version = excluded.version, job_id = excluded.job_id,
                args_hash = excluded.args_hash, args_bytes = excluded.args_bytes
            WHERE v.version < excluded.version;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'pawl: version % of "%" is not newer than what was applied', j.version,
                j.entity USING ERRCODE = 'PWVER',
                HINT = 'Roll back and end with success: the worker records why.';
        END IF;
    END IF;
    INSERT INTO pawl.x_done (job_id, outcome, lease_id, worker, started_at_us, ended_at_us, runs,
                             failures, lost, releases, snoozes, result)
        VALUES (r.job_id, 'done', r.lease_id, r.worker, r.started_at_us, now_us, r.runs + 1,
                r.failures, r.lost, r.releases, r.snoozes, complete.result);
END $$;

CREATE OR REPLACE FUNCTION pawl.complete(job bigint, lease text, result json) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pawl.complete($1, $2, $3::text)
$$;

CREATE OR REPLACE FUNCTION pawl.complete(job bigint, lease text, result jsonb) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pawl.complete($1, $2, $3::text)
$$;

-- The same handler, when it cannot: its run has failed, with what it writes in the same
-- transaction. Said in the running row: the worker, when the child has ended, or whoever takes
-- over, settles by it, whatever the exit code. outcome: transient (again, up to max_retries),
-- permanent (dead), snooze (not yet); after: not before so long from then. Refused as complete is.
CREATE OR REPLACE FUNCTION pawl.fail(job bigint, lease text, error text DEFAULT NULL,
                                     outcome text DEFAULT 'permanent', after interval DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    mine CONSTANT bytea NOT NULL := pawl.x_lease(lease);
BEGIN
    IF outcome IS NULL OR outcome COLLATE "C" NOT IN ('transient', 'permanent', 'snooze') THEN
        RAISE EXCEPTION 'pawl: outcome must be transient, permanent or snooze'
            USING ERRCODE = '22023';
    ELSIF after IS NOT NULL AND outcome COLLATE "C" = 'permanent' THEN
        RAISE EXCEPTION 'pawl: after goes with transient and snooze' USING ERRCODE = '22023';
    ELSIF after NOT BETWEEN interval '0' AND interval '3650 days' THEN
        RAISE EXCEPTION 'pawl: after must be from 0 to ten years' USING ERRCODE = '22023';
    END IF;
    -- Head and tail, as of every error: the last line says most.
    IF length(error) > 8192 THEN
        error := left(error, 1024) || E'\n... ' || length(error) - 8192
            || E' characters left out ...\n' || right(error, 7168);
    END IF;
    UPDATE pawl.x_running AS r
       SET said = fail.outcome, said_error = nullif(fail.error, ''),
           said_after_us = (extract(epoch FROM fail.after) * 1000000)::bigint
     WHERE r.job_id = fail.job AND r.lease_id = mine AND r.said IS NULL;
    IF NOT FOUND THEN
        PERFORM pawl.x_refuse_lease(job, mine);
    END IF;
END $$;

-- Who may do what. roles.sql makes the roles and lets them into the schema of one store; the rest
-- is granted here, to those that were let in, and anew on each migrate: a new view has no grants.
CREATE OR REPLACE FUNCTION pawl.x_grant() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    let_in CONSTANT name[] NOT NULL := ARRAY(
        SELECT r.rolname FROM pg_namespace AS n, aclexplode(n.nspacl) AS a, pg_roles AS r
         WHERE n.nspname = 'pawl' AND a.privilege_type = 'USAGE' AND r.oid = a.grantee);
BEGIN
    REVOKE ALL ON ALL FUNCTIONS IN SCHEMA pawl FROM PUBLIC;
    IF 'pawl_producer' = ANY (let_in) THEN
        GRANT EXECUTE ON FUNCTION
            pawl.enqueue(text, text, text, text, text, integer, timestamptz, timestamptz, integer,
                         text, bigint, text, text),
            pawl.enqueue(text, json, text, text, text, integer, timestamptz, timestamptz, integer,
                         text, bigint, json, text),
            pawl.enqueue(text, jsonb, text, text, text, integer, timestamptz, timestamptz, integer,
                         text, bigint, jsonb, text),
            pawl.x_enqueue_many(bytea[], bytea[], bytea[], bytea[], bytea[], integer[], bigint[],
                                bigint[], integer[], bytea[], bigint[], bytea[], bytea[])
            TO pawl_producer;
    END IF;
    IF 'pawl_reader' = ANY (let_in) THEN
        GRANT SELECT ON pawl.jobs, pawl.attempts, pawl.queues, pawl.tasks TO pawl_reader;
        GRANT SELECT ON pawl.x_store TO pawl_reader; -- what a command must know to open the store
        IF to_regclass('pawl.x_migration') IS NOT NULL THEN
            GRANT SELECT ON pawl.x_migration TO pawl_reader;
        END IF;
        IF to_regclass('pawl.x_move') IS NOT NULL THEN
            GRANT SELECT ON pawl.x_move TO pawl_reader;
        END IF;
    END IF;
    IF 'pawl_worker' = ANY (let_in) THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pawl TO pawl_worker;
        GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA pawl TO pawl_worker;
        GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pawl TO pawl_worker;
        REVOKE INSERT, UPDATE, DELETE ON pawl.x_store FROM pawl_worker;
        IF to_regclass('pawl.x_migration') IS NOT NULL THEN
            REVOKE INSERT, UPDATE, DELETE ON pawl.x_migration FROM pawl_worker;
        END IF;
        IF to_regclass('pawl.x_move') IS NOT NULL THEN
            REVOKE INSERT, UPDATE, DELETE ON pawl.x_move FROM pawl_worker;
        END IF;
    END IF;
END $$;
DO 'BEGIN PERFORM pawl.x_grant(); END';

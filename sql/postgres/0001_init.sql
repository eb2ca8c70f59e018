-- pawl: breaking
-- The first schema, with the number and the meaning of SQLite's. Tables named x_ are private: the
-- views and functions (views.sql) are the contract. Where the id is, is the state: ready, running,
-- done, dead, dropped, cancelled. job is written once. Texts compare byte by byte (COLLATE "C").

-- A named handler. policy: canonical text, NULL until a worker has declared the task. queue_id and
-- priority are its defaults, kept here as numbers so that every door can read them.
CREATE TABLE pawl.x_task (
    id            BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name          TEXT COLLATE "C" NOT NULL UNIQUE,
    policy        TEXT COLLATE "C",
    queue_id      BIGINT,
    priority      INTEGER NOT NULL DEFAULT 0,
    paused        INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    created_at_us BIGINT NOT NULL
);

CREATE TABLE pawl.x_queue (
    id            BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name          TEXT COLLATE "C" NOT NULL UNIQUE,
    paused        INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    created_at_us BIGINT NOT NULL
);

-- The request, byte for byte. An id is never used again: a sequence does not roll back. root_id
-- NULL: its own root.
CREATE TABLE pawl.x_job (
    id            BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    root_id       BIGINT,
    gen           BIGINT NOT NULL DEFAULT 0,
    replay_of     BIGINT,
    task_id       BIGINT NOT NULL,
    queue_id      BIGINT NOT NULL,
    source        TEXT COLLATE "C" NOT NULL DEFAULT '',
    key           TEXT COLLATE "C",
    args          TEXT COLLATE "C" NOT NULL,
    headers       TEXT COLLATE "C",
    trace         TEXT COLLATE "C",
    entity        TEXT COLLATE "C",
    version       BIGINT,
    serial        TEXT COLLATE "C",
    priority      INTEGER NOT NULL CHECK (priority BETWEEN -100 AND 100),
    max_retries   BIGINT,
    run_at_us     BIGINT NOT NULL,
    expires_at_us BIGINT,
    created_at_us BIGINT NOT NULL
);
CREATE INDEX x_job_root ON pawl.x_job (root_id) WHERE root_id IS NOT NULL;

-- The dedupe ledger. Written with the job, next touched by prune, which moves in what a duplicate
-- must still be told: hash and length of the args, the final state, the result, the expiry.
CREATE TABLE pawl.x_key (
    task_id       BIGINT NOT NULL,
    source        TEXT COLLATE "C" NOT NULL,
    key           TEXT COLLATE "C" NOT NULL,
    job_id        BIGINT NOT NULL,
    args_hash     BIGINT,
    args_bytes    BIGINT,
    state         TEXT COLLATE "C",
    result        TEXT COLLATE "C",
    expires_at_us BIGINT,
    PRIMARY KEY (task_id, source, key)
);
CREATE INDEX x_key_expiry ON pawl.x_key (expires_at_us) WHERE expires_at_us IS NOT NULL;

-- What waits. rank = -priority. moved = 1: run_at or a counter no longer is what the job row says,
-- so the row is found by id through the partial index; otherwise by its whole key from the job row.
CREATE TABLE pawl.x_ready (
    task_id       BIGINT NOT NULL,
    queue_id      BIGINT NOT NULL,
    rank          BIGINT NOT NULL,
    run_at_us     BIGINT NOT NULL,
    id            BIGINT NOT NULL,
    moved         INTEGER NOT NULL DEFAULT 0 CHECK (moved IN (0, 1)),
    runs          BIGINT NOT NULL DEFAULT 0 CHECK (runs >= 0),
    failures      BIGINT NOT NULL DEFAULT 0 CHECK (failures >= 0),
    lost          BIGINT NOT NULL DEFAULT 0 CHECK (lost >= 0),
    releases      BIGINT NOT NULL DEFAULT 0 CHECK (releases >= 0),
    snoozes       BIGINT NOT NULL DEFAULT 0 CHECK (snoozes >= 0),
    suspect       INTEGER NOT NULL DEFAULT 0 CHECK (suspect IN (0, 1)),
    PRIMARY KEY (task_id, queue_id, rank, run_at_us, id)
);
CREATE INDEX x_ready_moved ON pawl.x_ready (id) WHERE moved = 1;
CREATE INDEX x_ready_suspect ON pawl.x_ready (task_id) WHERE suspect = 1;

-- What is leased. lease_id is random and compared by equality only: the fence. said: how the run
-- ended, as its handler has committed it (pawl.fail); whoever settles it heeds that.
CREATE TABLE pawl.x_running (
    job_id        BIGINT PRIMARY KEY,
    lease_id      BYTEA NOT NULL CHECK (length(lease_id) = 16),
    worker        TEXT COLLATE "C" NOT NULL,
    token         BIGINT NOT NULL,
    started_at_us BIGINT NOT NULL,
    task_id       BIGINT NOT NULL,
    queue_id      BIGINT NOT NULL,
    rank          BIGINT NOT NULL,
    run_at_us     BIGINT NOT NULL,
    runs          BIGINT NOT NULL,
    failures      BIGINT NOT NULL,
    lost          BIGINT NOT NULL,
    releases      BIGINT NOT NULL,
    snoozes       BIGINT NOT NULL,
    suspect       INTEGER NOT NULL,
    said          TEXT COLLATE "C" CHECK (said IN ('transient', 'permanent', 'snooze')),
    said_error    TEXT COLLATE "C",
    said_after_us BIGINT
);
-- No index by worker: it would cost every leased job two writes, and few rows are here at a time.

-- Who takes part, from which host. beat_at_us is the server's clock: a worker whose beat is older
-- than its lease has lost its jobs. parent: a runner of that worker.
CREATE TABLE pawl.x_worker (
    id            TEXT COLLATE "C" PRIMARY KEY,
    parent        TEXT COLLATE "C",
    host          TEXT COLLATE "C" NOT NULL,
    pid           BIGINT NOT NULL,
    lease_us      BIGINT NOT NULL,
    joined_at_us  BIGINT NOT NULL,
    beat_at_us    BIGINT NOT NULL,
    mark          TEXT COLLATE "C"          -- last words of its effect batch: nonce, alone, jobs
);

CREATE TABLE pawl.x_done (
    job_id        BIGINT PRIMARY KEY,
    outcome       TEXT COLLATE "C" NOT NULL CHECK (outcome IN ('done', 'stale')),
    lease_id      BYTEA NOT NULL,
    worker        TEXT COLLATE "C" NOT NULL,
    started_at_us BIGINT NOT NULL,
    ended_at_us   BIGINT NOT NULL,
    runs          BIGINT NOT NULL,
    failures      BIGINT NOT NULL,
    lost          BIGINT NOT NULL,
    releases      BIGINT NOT NULL,
    snoozes       BIGINT NOT NULL,
    result        TEXT COLLATE "C"
);

CREATE TABLE pawl.x_dead (
    job_id        BIGINT PRIMARY KEY,
    class         TEXT COLLATE "C" NOT NULL CHECK (class IN ('permanent', 'exhausted', 'poison',
                          'expired', 'unroutable', 'undecodable', 'in_doubt', 'conflict',
                          'misuse')),
    reason        TEXT COLLATE "C" NOT NULL,
    error         TEXT COLLATE "C",
    worker        TEXT COLLATE "C",
    ended_at_us   BIGINT NOT NULL,
    runs          BIGINT NOT NULL,
    failures      BIGINT NOT NULL,
    lost          BIGINT NOT NULL,
    releases      BIGINT NOT NULL,
    snoozes       BIGINT NOT NULL,
    replayed_as   BIGINT,
    replay_reason TEXT COLLATE "C"
);

CREATE TABLE pawl.x_dropped (
    job_id        BIGINT PRIMARY KEY,
    outcome       TEXT COLLATE "C" NOT NULL CHECK (outcome IN ('failed', 'lost', 'discarded')),
    reason        TEXT COLLATE "C" NOT NULL,
    error         TEXT COLLATE "C",
    worker        TEXT COLLATE "C",
    ended_at_us   BIGINT NOT NULL,
    runs          BIGINT NOT NULL,
    failures      BIGINT NOT NULL,
    lost          BIGINT NOT NULL,
    releases      BIGINT NOT NULL,
    snoozes       BIGINT NOT NULL,
    replayed_as   BIGINT -- of a dead letter that was discarded after its replay
);

CREATE TABLE pawl.x_cancelled (
    job_id        BIGINT PRIMARY KEY,
    reason        TEXT COLLATE "C" NOT NULL,
    ended_at_us   BIGINT NOT NULL,
    runs          BIGINT NOT NULL,
    failures      BIGINT NOT NULL,
    lost          BIGINT NOT NULL,
    releases      BIGINT NOT NULL,
    snoozes       BIGINT NOT NULL
);

-- One row for every end of a run but success; the newest 50 of a job are kept, n counts on.
CREATE TABLE pawl.x_attempt (
    job_id        BIGINT NOT NULL,
    n             BIGINT NOT NULL,
    lease_id      BYTEA NOT NULL,
    outcome       TEXT COLLATE "C" NOT NULL CHECK (outcome IN ('transient', 'permanent', 'timeout',
                          'snooze',
                          'discard', 'lost', 'suspect', 'released', 'expired', 'undecodable',
                          'conflict', 'misuse', 'cancelled')),
    worker        TEXT COLLATE "C",
    host          TEXT COLLATE "C",
    build         TEXT COLLATE "C",
    started_at_us BIGINT NOT NULL,
    ended_at_us   BIGINT NOT NULL,
    exit_code     INTEGER,
    signal        INTEGER,
    max_rss_kib   BIGINT,
    delay_us      BIGINT,
    error         TEXT COLLATE "C",
    out_tail      TEXT COLLATE "C",
    err_tail      TEXT COLLATE "C",
    PRIMARY KEY (job_id, n)
);

-- The version guard: what was applied last, per task and entity. Moved by committed effects only.
CREATE TABLE pawl.x_version (
    task_id       BIGINT NOT NULL,
    entity        TEXT COLLATE "C" NOT NULL,
    version       BIGINT NOT NULL,
    job_id        BIGINT NOT NULL,
    args_hash     BIGINT NOT NULL,
    args_bytes    BIGINT NOT NULL,
    PRIMARY KEY (task_id, entity)
);

-- Blame records that were read, so that each is read once.
CREATE TABLE pawl.x_blame (
    nonce         TEXT COLLATE "C" PRIMARY KEY,
    read_at_us    BIGINT NOT NULL
);

-- Proof counters: duplicates absorbed, stale no-ops, fenced settles, ...
CREATE TABLE pawl.x_counter (
    name          TEXT COLLATE "C" PRIMARY KEY,
    value         BIGINT NOT NULL
);

-- Rows come and go here all day: vacuum by their own threshold, not by a share of the table.
ALTER TABLE pawl.x_ready SET (fillfactor = 90, autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE pawl.x_running SET (fillfactor = 90, autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE pawl.x_worker SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000);
ALTER TABLE pawl.x_counter SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000);

-- One row: what this store is called, whatever its server is called.
CREATE TABLE pawl.x_store (
    one           INTEGER PRIMARY KEY CHECK (one = 1),
    id            TEXT COLLATE "C" NOT NULL
);
INSERT INTO pawl.x_store (one, id) VALUES (1, gen_random_uuid()::text);

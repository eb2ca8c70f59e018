-- pawl: breaking
-- The first schema. Tables named pawl_x_ are private: views and triggers (views.sql) are the
-- contract.
-- Where the id is, is the state: ready, running, done, dead, dropped, cancelled. job is written
-- once.

-- A named handler. policy: canonical text, NULL until a worker has declared the task. queue_id and
-- priority are its defaults, kept here as numbers so that every door can read them.
CREATE TABLE pawl_x_task (
    id            INTEGER PRIMARY KEY,
    name          TEXT    NOT NULL UNIQUE,
    policy        TEXT,
    queue_id      INTEGER,
    priority      INTEGER NOT NULL DEFAULT 0,
    paused        INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    created_at_us INTEGER NOT NULL
) STRICT;

CREATE TABLE pawl_x_queue (
    id            INTEGER PRIMARY KEY,
    name          TEXT    NOT NULL UNIQUE,
    paused        INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    created_at_us INTEGER NOT NULL
) STRICT;

-- The request, byte for byte. AUTOINCREMENT: an id is never used again. root_id NULL: its own root.
CREATE TABLE pawl_x_job (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    root_id       INTEGER,
    gen           INTEGER NOT NULL DEFAULT 0,
    replay_of     INTEGER,
    task_id       INTEGER NOT NULL,
    queue_id      INTEGER NOT NULL,
    source        TEXT    NOT NULL DEFAULT '',
    key           TEXT,
    args          TEXT    NOT NULL,
    headers       TEXT,
    trace         TEXT,
    entity        TEXT,
    version       INTEGER,
    serial        TEXT,
    priority      INTEGER NOT NULL CHECK (priority BETWEEN -100 AND 100),
    max_retries   INTEGER,
    run_at_us     INTEGER NOT NULL,
    expires_at_us INTEGER,
    created_at_us INTEGER NOT NULL
) STRICT;
CREATE INDEX pawl_x_job_root ON pawl_x_job (root_id) WHERE root_id IS NOT NULL;

-- The dedupe ledger. Written with the job, next touched by prune, which moves in what a duplicate
-- must still be told: hash and length of the args, the final state, the result, the expiry.
CREATE TABLE pawl_x_key (
    task_id       INTEGER NOT NULL,
    source        TEXT    NOT NULL,
    key           TEXT    NOT NULL,
    job_id        INTEGER NOT NULL,
    args_hash     INTEGER,
    args_bytes    INTEGER,
    state         TEXT,
    result        TEXT,
    expires_at_us INTEGER,
    PRIMARY KEY (task_id, source, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX pawl_x_key_expiry ON pawl_x_key (expires_at_us) WHERE expires_at_us IS NOT NULL;

-- What waits. rank = -priority. moved = 1: run_at or a counter no longer is what the job row says,
-- so the row is found by id through the partial index; otherwise by its whole key from the job row.
CREATE TABLE pawl_x_ready (
    task_id       INTEGER NOT NULL,
    queue_id      INTEGER NOT NULL,
    rank          INTEGER NOT NULL,
    run_at_us     INTEGER NOT NULL,
    id            INTEGER NOT NULL,
    moved         INTEGER NOT NULL DEFAULT 0 CHECK (moved IN (0, 1)),
    runs          INTEGER NOT NULL DEFAULT 0 CHECK (runs >= 0),
    failures      INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0),
    lost          INTEGER NOT NULL DEFAULT 0 CHECK (lost >= 0),
    releases      INTEGER NOT NULL DEFAULT 0 CHECK (releases >= 0),
    snoozes       INTEGER NOT NULL DEFAULT 0 CHECK (snoozes >= 0),
    suspect       INTEGER NOT NULL DEFAULT 0 CHECK (suspect IN (0, 1)),
    PRIMARY KEY (task_id, queue_id, rank, run_at_us, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX pawl_x_ready_moved ON pawl_x_ready (id) WHERE moved = 1;
CREATE INDEX pawl_x_ready_suspect ON pawl_x_ready (task_id) WHERE suspect = 1;

-- What is leased. lease_id is random and compared by equality only: the fence.
CREATE TABLE pawl_x_running (
    job_id        INTEGER PRIMARY KEY,
    lease_id      BLOB    NOT NULL CHECK (length(lease_id) = 16),
    worker        TEXT    NOT NULL,
    token         INTEGER NOT NULL,
    started_at_us INTEGER NOT NULL,
    task_id       INTEGER NOT NULL,
    queue_id      INTEGER NOT NULL,
    rank          INTEGER NOT NULL,
    run_at_us     INTEGER NOT NULL,
    runs          INTEGER NOT NULL,
    failures      INTEGER NOT NULL,
    lost          INTEGER NOT NULL,
    releases      INTEGER NOT NULL,
    snoozes       INTEGER NOT NULL,
    suspect       INTEGER NOT NULL
) STRICT;
-- No index by worker: it would cost every leased job two writes, and few rows are here at a time.

CREATE TABLE pawl_x_done (
    job_id        INTEGER PRIMARY KEY,
    outcome       TEXT    NOT NULL CHECK (outcome IN ('done', 'stale')),
    lease_id      BLOB    NOT NULL,
    worker        TEXT    NOT NULL,
    started_at_us INTEGER NOT NULL,
    ended_at_us   INTEGER NOT NULL,
    runs          INTEGER NOT NULL,
    failures      INTEGER NOT NULL,
    lost          INTEGER NOT NULL,
    releases      INTEGER NOT NULL,
    snoozes       INTEGER NOT NULL,
    result        TEXT
) STRICT;

CREATE TABLE pawl_x_dead (
    job_id        INTEGER PRIMARY KEY,
    class         TEXT    NOT NULL CHECK (class IN ('permanent', 'exhausted', 'poison', 'expired',
                          'unroutable', 'undecodable', 'in_doubt', 'conflict', 'misuse')),
    reason        TEXT    NOT NULL,
    error         TEXT,
    worker        TEXT,
    ended_at_us   INTEGER NOT NULL,
    runs          INTEGER NOT NULL,
    failures      INTEGER NOT NULL,
    lost          INTEGER NOT NULL,
    releases      INTEGER NOT NULL,
    snoozes       INTEGER NOT NULL,
    replayed_as   INTEGER,
    replay_reason TEXT
) STRICT;

CREATE TABLE pawl_x_dropped (
    job_id        INTEGER PRIMARY KEY,
    outcome       TEXT    NOT NULL CHECK (outcome IN ('failed', 'lost', 'discarded')),
    reason        TEXT    NOT NULL,
    error         TEXT,
    worker        TEXT,
    ended_at_us   INTEGER NOT NULL,
    runs          INTEGER NOT NULL,
    failures      INTEGER NOT NULL,
    lost          INTEGER NOT NULL,
    releases      INTEGER NOT NULL,
    snoozes       INTEGER NOT NULL,
    replayed_as   INTEGER -- of a dead letter that was discarded after its replay
) STRICT;

CREATE TABLE pawl_x_cancelled (
    job_id        INTEGER PRIMARY KEY,
    reason        TEXT    NOT NULL,
    ended_at_us   INTEGER NOT NULL,
    runs          INTEGER NOT NULL,
    failures      INTEGER NOT NULL,
    lost          INTEGER NOT NULL,
    releases      INTEGER NOT NULL,
    snoozes       INTEGER NOT NULL
) STRICT;

-- One row for every end of a run but success; the newest 50 of a job are kept, n counts on.
CREATE TABLE pawl_x_attempt (
    job_id        INTEGER NOT NULL,
    n             INTEGER NOT NULL,
    lease_id      BLOB    NOT NULL,
    outcome       TEXT    NOT NULL CHECK (outcome IN ('transient', 'permanent', 'timeout', 'snooze',
                          'discard', 'lost', 'suspect', 'released', 'expired', 'undecodable',
                          'conflict', 'misuse', 'cancelled')),
    worker        TEXT,
    host          TEXT,
    build         TEXT,
    started_at_us INTEGER NOT NULL,
    ended_at_us   INTEGER NOT NULL,
    exit_code     INTEGER,
    signal        INTEGER,
    max_rss_kib   INTEGER,
    delay_us      INTEGER,
    error         TEXT,
    out_tail      TEXT,
    err_tail      TEXT,
    PRIMARY KEY (job_id, n)
) STRICT, WITHOUT ROWID;

-- The version guard: what was applied last, per task and entity. Moved by committed effects only.
CREATE TABLE pawl_x_version (
    task_id       INTEGER NOT NULL,
    entity        TEXT    NOT NULL,
    version       INTEGER NOT NULL,
    job_id        INTEGER NOT NULL,
    args_hash     INTEGER NOT NULL,
    args_bytes    INTEGER NOT NULL,
    PRIMARY KEY (task_id, entity)
) STRICT, WITHOUT ROWID;

-- Blame records that were read, so that each is read once.
CREATE TABLE pawl_x_blame (
    nonce         TEXT    PRIMARY KEY,
    read_at_us    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Proof counters: duplicates absorbed, stale no-ops, fenced settles, ...
CREATE TABLE pawl_x_counter (
    name          TEXT    PRIMARY KEY,
    value         INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One row: the answer to the last INSERT INTO pawl_enqueue of the current transaction.
CREATE TABLE pawl_x_last (
    one           INTEGER PRIMARY KEY CHECK (one = 1),
    id            INTEGER,
    created       INTEGER,
    task_id       INTEGER,
    queue_id      INTEGER,
    run_at_us     INTEGER,
    expires_at_us INTEGER,
    now_us        INTEGER
) STRICT;
INSERT INTO pawl_x_last (one) VALUES (1);

-- +goose Up
-- Times are microseconds since 1970 in UTC; 0 is no time. Rows that are small and looked up by key live in
-- the index of their key (WITHOUT ROWID).

-- Executors ------------------------------------------------------------------

-- The last incarnation. An incarnation belongs to one registration, so the row of a restarted executor is not
-- that of the process before it.
CREATE TABLE incarnations (last INTEGER NOT NULL) STRICT;
INSERT INTO incarnations VALUES (0);

-- One row per living executor.
CREATE TABLE executors (
    id          TEXT PRIMARY KEY,
    incarnation INTEGER NOT NULL,
    heartbeat   INTEGER NOT NULL,
    addr        TEXT NOT NULL,
    -- The name under which the process works jobs: the jobs that it dies with become available again at once.
    worker      TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

-- The key that executors sign attempt token with where no key is configured, and accept in any case. The first
-- executor makes the one row.
CREATE TABLE token_key (
    id  INTEGER PRIMARY KEY CHECK (id = 1),
    key BLOB NOT NULL
) STRICT;

-- Runs -----------------------------------------------------------------------

-- Graphs are kept once per namespace and content.
CREATE TABLE graphs (
    namespace TEXT NOT NULL,
    hash      TEXT NOT NULL,
    body      BLOB NOT NULL,
    -- When a run last took the graph, give or take an hour. A graph that no run has taken for days and none
    -- refers to is removed.
    use_time  INTEGER NOT NULL DEFAULT 0,
    UNIQUE (namespace, hash)
) STRICT;

-- What changes with every commit is kept apart from what does not.
CREATE TABLE runs (
    run_id              TEXT NOT NULL UNIQUE,
    namespace           TEXT NOT NULL,
    owner_id            TEXT NOT NULL, -- empty while the run waits without an owner
    owner_incarnation   INTEGER NOT NULL,
    last_seq            INTEGER NOT NULL,
    revision            INTEGER NOT NULL,
    graph_revision      INTEGER NOT NULL DEFAULT 0,
    create_time         INTEGER NOT NULL,
    start_time          INTEGER NOT NULL,
    end_time            INTEGER NOT NULL,
    update_time         INTEGER NOT NULL,
    wake_time           INTEGER NOT NULL,
    cancel_time         INTEGER NOT NULL,
    deadline            INTEGER NOT NULL DEFAULT 0,
    input_tokens        INTEGER NOT NULL,
    cached_input_tokens INTEGER NOT NULL,
    output_tokens       INTEGER NOT NULL,
    reasoning_tokens    INTEGER NOT NULL,
    calls               INTEGER NOT NULL,
    state               INTEGER NOT NULL,
    priority            INTEGER NOT NULL DEFAULT 0,
    takeovers           INTEGER NOT NULL,
    machine_version     INTEGER NOT NULL,
    nodes_total         INTEGER NOT NULL,
    nodes_completed     INTEGER NOT NULL,
    nodes_failed        INTEGER NOT NULL,
    nodes_skipped       INTEGER NOT NULL,
    nodes_running       INTEGER NOT NULL,
    holds_key           INTEGER NOT NULL,
    sampled             INTEGER NOT NULL,
    state_reason        TEXT NOT NULL,
    cancel_reason       TEXT NOT NULL,
    -- What a run that is suspected of crashing its owners is at work with, and what it was at work with when
    -- one of them crashed.
    doing               TEXT NOT NULL DEFAULT '',
    died_doing          TEXT NOT NULL DEFAULT '',
    graph_name          TEXT NOT NULL,
    graph_hash          TEXT NOT NULL,
    -- The graph that the run began with, once it has another.
    first_graph         TEXT NOT NULL DEFAULT '',
    task_id             TEXT NOT NULL,
    user_id             TEXT NOT NULL,
    chat_id             TEXT NOT NULL,
    thread_id           TEXT NOT NULL,
    business_key        TEXT NOT NULL,
    parent_run_id       TEXT NOT NULL,
    root_run_id         TEXT NOT NULL,
    forked_from         TEXT NOT NULL DEFAULT '',
    schedule_id         TEXT NOT NULL DEFAULT '',
    trace_parent        TEXT NOT NULL,
    trace_state         TEXT NOT NULL
) STRICT;

-- States: 1 pending, 2 running, 3 waiting, 4 paused, 5 quarantined, 6 completed, 7 failed, 8 canceled.
-- One index lists runs by state, and, state by state, by time, and finds those that ended.
CREATE INDEX runs_listed      ON runs (namespace, state, create_time, run_id);
CREATE INDEX runs_by_task     ON runs (namespace, task_id, create_time DESC, run_id DESC) WHERE task_id <> '';
CREATE INDEX runs_by_user     ON runs (namespace, user_id, create_time DESC, run_id DESC) WHERE user_id <> '';
CREATE INDEX runs_by_chat     ON runs (namespace, chat_id, create_time DESC, run_id DESC) WHERE chat_id <> '';
CREATE INDEX runs_by_thread   ON runs (namespace, thread_id, create_time DESC, run_id DESC) WHERE thread_id <> '';
CREATE INDEX runs_by_business ON runs (namespace, business_key, create_time DESC, run_id DESC) WHERE business_key <> '';
CREATE INDEX runs_by_parent   ON runs (namespace, parent_run_id, create_time DESC, run_id DESC) WHERE parent_run_id <> '';
CREATE INDEX runs_by_schedule ON runs (namespace, schedule_id, create_time DESC, run_id DESC) WHERE schedule_id <> '';
CREATE UNIQUE INDEX runs_key_holder ON runs (namespace, business_key) WHERE holds_key = 1;
CREATE INDEX runs_open_by_schedule  ON runs (namespace, schedule_id) WHERE schedule_id <> '' AND state < 6;

-- Parked runs have no owner, and are in none of the indexes that the scans of owners use.
CREATE INDEX runs_owned    ON runs (owner_id, owner_incarnation, run_id) WHERE state < 6 AND owner_id <> '';
CREATE INDEX runs_released ON runs (run_id) WHERE state = 2 AND owner_id = '';
-- Runs that wait for room in their namespace, in the order in which they get it.
CREATE INDEX runs_pending  ON runs (namespace, priority, create_time, run_id) WHERE state = 1 AND owner_id = '' AND wake_time = 0;
-- Runs that are due at a time, paused ones that go on by themselves included.
CREATE INDEX runs_wakes    ON runs (wake_time) WHERE state IN (1, 3, 4) AND owner_id = '' AND wake_time > 0;
-- Canceled runs that nobody owns are taken over however full executors are.
CREATE INDEX runs_canceled ON runs (namespace, run_id) WHERE state < 6 AND cancel_time > 0;

-- What a run begins and ends with.
CREATE TABLE run_details (
    run_id      TEXT NOT NULL UNIQUE,
    namespace   TEXT NOT NULL,
    labels      BLOB,
    metadata    BLOB,
    args        BLOB,
    named       BLOB,
    context     BLOB,
    attachments BLOB,
    result      BLOB,
    outputs     BLOB,
    error       BLOB
) STRICT;

-- Money is booked by acknowledged outbox items and never by commits.
CREATE TABLE run_costs (
    run_id         TEXT PRIMARY KEY,
    namespace      TEXT NOT NULL,
    cost_nano_usd  INTEGER NOT NULL,
    unpriced_calls INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE run_labels (
    run_id      TEXT NOT NULL,
    key         TEXT NOT NULL,
    namespace   TEXT NOT NULL,
    value       TEXT NOT NULL,
    create_time INTEGER NOT NULL,
    PRIMARY KEY (run_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_labels_by_value ON run_labels (namespace, key, value, create_time DESC, run_id DESC);

-- Events ---------------------------------------------------------------------

-- The journal.
CREATE TABLE events (
    run_id    TEXT NOT NULL,
    seq       INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    time      INTEGER NOT NULL,
    kind      INTEGER NOT NULL,
    node_id   TEXT NOT NULL,
    visit     INTEGER NOT NULL CHECK (visit >= 0),
    data      BLOB,
    PRIMARY KEY (run_id, seq)
) STRICT;

-- A cache of positions, which follow from the events.
CREATE TABLE snapshots (
    run_id    TEXT NOT NULL UNIQUE,
    namespace TEXT NOT NULL,
    seq       INTEGER NOT NULL,
    data      BLOB NOT NULL
) STRICT;

-- Where the runs are that were taken out of the database.
CREATE TABLE archives (
    namespace    TEXT NOT NULL,
    run_id       TEXT NOT NULL,
    place        TEXT NOT NULL,
    archive_time INTEGER NOT NULL,
    PRIMARY KEY (namespace, run_id)
) STRICT, WITHOUT ROWID;

-- What comes in and goes out -------------------------------------------------

-- Which starts were carried out, so that a repeated request starts nothing.
CREATE TABLE request_ids (
    namespace   TEXT NOT NULL,
    method      TEXT NOT NULL,
    request_id  TEXT NOT NULL,
    body_hash   TEXT NOT NULL,
    run_id      TEXT NOT NULL,
    create_time INTEGER NOT NULL,
    PRIMARY KEY (namespace, method, request_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX request_ids_by_time ON request_ids (create_time);

-- What happens outside of a run and must be taken into account by it.
CREATE TABLE commands (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    time      INTEGER NOT NULL,
    run_id    TEXT NOT NULL,
    namespace TEXT NOT NULL,
    kind      TEXT NOT NULL,
    key       TEXT NOT NULL,
    body      BLOB,
    UNIQUE (run_id, kind, key)
) STRICT;

-- Interrupts of runs. State 1 is open.
CREATE TABLE interrupts (
    id            TEXT PRIMARY KEY,
    namespace     TEXT NOT NULL,
    run_id        TEXT NOT NULL,
    root_run_id   TEXT NOT NULL,
    node_id       TEXT NOT NULL,
    visit         INTEGER NOT NULL,
    item          INTEGER NOT NULL,
    state         INTEGER NOT NULL,
    create_time   INTEGER NOT NULL,
    expire_time   INTEGER NOT NULL,
    close_time    INTEGER NOT NULL,
    prompt        BLOB,
    schema        BLOB,
    approve       BLOB,
    of_agent      INTEGER NOT NULL DEFAULT 0, -- whether an agent's own loop asks
    binds         TEXT NOT NULL DEFAULT '', -- what an approval covers besides what it asks
    default_value BLOB,
    decision      TEXT NOT NULL DEFAULT '',
    answer        BLOB,
    closed_by     TEXT NOT NULL DEFAULT '',
    principal     TEXT NOT NULL DEFAULT ''  -- who answered, from the API key that was shown
) STRICT;
CREATE INDEX interrupts_listed  ON interrupts (namespace, state, create_time, id);
CREATE INDEX interrupts_by_root ON interrupts (root_run_id, create_time DESC, id DESC);
CREATE INDEX interrupts_by_run  ON interrupts (run_id);

-- What other services must learn of: written with its cause, delivered at least once.
CREATE TABLE outbox (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id     TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    ordinal    INTEGER NOT NULL,
    namespace  TEXT NOT NULL,
    kind       TEXT NOT NULL,
    next_at    INTEGER NOT NULL,
    attempts   INTEGER NOT NULL,
    last_error TEXT NOT NULL,
    body       BLOB,
    UNIQUE (run_id, seq, ordinal)
) STRICT;
-- By namespace, in the order in which items are due: claims take from each namespace in turn.
CREATE INDEX outbox_by_namespace ON outbox (namespace, next_at);

-- Threads --------------------------------------------------------------------

-- What an agent said, heard and decided, in order. A fork has its parent's items up to parent_seq. No commit
-- that appends changes the row.
CREATE TABLE threads (
    thread_id   TEXT PRIMARY KEY,
    namespace   TEXT NOT NULL,
    parent_seq  INTEGER NOT NULL,
    create_time INTEGER NOT NULL,
    use_time    INTEGER NOT NULL, -- when it was made or held last
    hide_time   INTEGER NOT NULL DEFAULT 0, -- since when it is deleted
    lifetime    INTEGER NOT NULL,
    depth       INTEGER NOT NULL,
    key         TEXT NOT NULL,
    agent       TEXT NOT NULL,
    title       TEXT NOT NULL,
    parent_id   TEXT NOT NULL,
    holder      TEXT NOT NULL,
    below       TEXT NOT NULL -- the runs below the holder that it is lent to
) STRICT;
CREATE UNIQUE INDEX threads_by_key ON threads (namespace, key) WHERE key <> '';
CREATE INDEX threads_listed    ON threads (namespace, create_time DESC, thread_id DESC) WHERE hide_time = 0;
CREATE INDEX threads_by_agent  ON threads (namespace, agent, create_time DESC, thread_id DESC) WHERE agent <> '' AND hide_time = 0;
CREATE INDEX threads_by_parent ON threads (parent_id, create_time DESC, thread_id DESC) WHERE parent_id <> '';
CREATE INDEX threads_by_holder ON threads (holder) WHERE holder <> '';
CREATE INDEX threads_fleeting  ON threads (thread_id) WHERE lifetime > 1 AND hide_time = 0;
CREATE INDEX threads_hidden    ON threads (thread_id) WHERE hide_time > 0;

CREATE TABLE thread_items (
    seq       INTEGER NOT NULL,
    time      INTEGER NOT NULL,
    kind      INTEGER NOT NULL,
    visit     INTEGER NOT NULL,
    weight    INTEGER NOT NULL, -- what it counts in thread_usage
    thread_id TEXT NOT NULL,
    namespace TEXT NOT NULL,
    run_id    TEXT NOT NULL,
    node_id   TEXT NOT NULL,
    brief     BLOB,
    body      BLOB,
    PRIMARY KEY (thread_id, seq)
) STRICT, WITHOUT ROWID;

-- How many threads a namespace has, and the bytes of their items and messages: the sum of its rows. Commits of
-- several executors add to different ones.
CREATE TABLE thread_usage (
    namespace TEXT NOT NULL,
    shard     INTEGER NOT NULL,
    threads   INTEGER NOT NULL,
    bytes     INTEGER NOT NULL,
    PRIMARY KEY (namespace, shard)
) STRICT, WITHOUT ROWID;

-- Messages to the agents of threads. State 1 waits.
CREATE TABLE thread_turns (
    number       INTEGER NOT NULL,
    state        INTEGER NOT NULL,
    create_time  INTEGER NOT NULL,
    start_time   INTEGER NOT NULL DEFAULT 0,
    thread_id    TEXT NOT NULL,
    namespace    TEXT NOT NULL,
    run_id       TEXT NOT NULL,
    interrupt_id TEXT NOT NULL DEFAULT '',
    asked_by     TEXT NOT NULL DEFAULT '',
    principal    TEXT NOT NULL,
    answers_any  INTEGER NOT NULL DEFAULT 0, -- whether its sender may answer what others than the agent ask
    error        TEXT NOT NULL DEFAULT '',
    message      BLOB,
    PRIMARY KEY (thread_id, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX thread_turns_queued ON thread_turns (create_time) WHERE state = 1;
CREATE INDEX thread_turns_next   ON thread_turns (thread_id, number) WHERE state = 1;

-- What agents keep beyond their threads. Of an agent and a user the oldest give way.
CREATE TABLE facts (
    time      INTEGER NOT NULL, -- when it was learned last
    namespace TEXT NOT NULL,
    fact_id   TEXT NOT NULL,
    agent     TEXT NOT NULL,
    user_id   TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    run_id    TEXT NOT NULL,
    name      TEXT NOT NULL,
    content   BLOB NOT NULL,
    PRIMARY KEY (namespace, fact_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX facts_listed ON facts (namespace, time DESC, fact_id DESC);
CREATE INDEX facts_of     ON facts (namespace, agent, user_id, time DESC, fact_id DESC);

-- Values ---------------------------------------------------------------------

-- Values that are kept outside of the database. Each has its row before it is stored.
CREATE TABLE blobs (
    namespace  TEXT NOT NULL,
    hash       BLOB NOT NULL,
    size       INTEGER NOT NULL,
    touch_time INTEGER NOT NULL,
    doom_time  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (namespace, hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX blobs_by_touch ON blobs (touch_time);

-- Which runs refer to them. What a commit refers to must have a row.
CREATE TABLE blob_refs (
    run_id    TEXT NOT NULL,
    namespace TEXT NOT NULL,
    hash      BLOB NOT NULL,
    snapshot  INTEGER NOT NULL,
    PRIMARY KEY (run_id, hash, snapshot),
    FOREIGN KEY (namespace, hash) REFERENCES blobs (namespace, hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_refs_by_hash      ON blob_refs (namespace, hash);
CREATE INDEX blob_refs_of_snapshots ON blob_refs (run_id) WHERE snapshot = 1;

-- What calls of nodes with a cache returned.
CREATE TABLE kept_outcomes (
    namespace   TEXT NOT NULL,
    key         BLOB NOT NULL,
    outcome     BLOB NOT NULL,
    expire_time INTEGER NOT NULL,
    PRIMARY KEY (namespace, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX kept_outcomes_by_end ON kept_outcomes (expire_time);

-- The tools that each configured MCP server listed last.
CREATE TABLE mcp_servers (
    name  TEXT PRIMARY KEY,
    tools BLOB NOT NULL
) STRICT;

-- Limits ---------------------------------------------------------------------

CREATE TABLE limits (
    namespace        TEXT NOT NULL,
    name             TEXT NOT NULL,
    max_concurrent   INTEGER NOT NULL,
    max_rate         INTEGER NOT NULL,
    rate_interval_us INTEGER NOT NULL,
    max_open_runs    INTEGER NOT NULL,
    max_pending_runs INTEGER NOT NULL,
    max_fan_out      INTEGER NOT NULL,
    max_bytes        INTEGER NOT NULL,
    -- How long the namespace keeps its runs after their end, where it says so itself.
    retention_us     INTEGER NOT NULL DEFAULT 0,
    update_time      INTEGER NOT NULL,
    principal        TEXT NOT NULL DEFAULT '',   -- who wrote last, from the API key that was shown
    PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

-- One row: it rises with every change, so that executors see cheaply whether what they know is still so.
CREATE TABLE limits_version (version INTEGER NOT NULL) STRICT;
INSERT INTO limits_version VALUES (1);

-- The last exchange of each executor. One that comes after a later one writes nothing.
CREATE TABLE limit_turns (
    owner_id    TEXT PRIMARY KEY,
    incarnation INTEGER NOT NULL,
    turn        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What each executor holds and waits for. A row counts only while its executor is registered with this
-- incarnation, so it is void the moment that the executor is taken over or leaves.
CREATE TABLE limit_holdings (
    namespace         TEXT NOT NULL,
    name              TEXT NOT NULL,
    owner_id          TEXT NOT NULL,
    owner_incarnation INTEGER NOT NULL,
    since             INTEGER NOT NULL,
    asked             INTEGER NOT NULL,
    held              INTEGER NOT NULL,
    waiting           INTEGER NOT NULL,
    runs              TEXT NOT NULL,
    PRIMARY KEY (namespace, name, owner_id)
) STRICT, WITHOUT ROWID;

-- When the last call that a rate allowed was to begin.
CREATE TABLE limit_rates (
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    last      INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

-- Accounts at model providers -------------------------------------------------

-- What an account gave in the last interval, and whose turn it is, as JSON. An exchange locks the row.
CREATE TABLE model_accounts (
    name        TEXT PRIMARY KEY,
    state       TEXT        NOT NULL,
    update_time INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What each executor has under way at an account and waits for. A row counts only while its executor is
-- registered with this incarnation. The turn is that of the last corrections that were applied.
CREATE TABLE model_account_waits (
    account           TEXT NOT NULL,
    owner_id          TEXT NOT NULL,
    owner_incarnation INTEGER      NOT NULL,
    turn              INTEGER      NOT NULL,
    held              INTEGER     NOT NULL,
    asked             INTEGER NOT NULL,
    waits             TEXT        NOT NULL,
    PRIMARY KEY (account, owner_id)
) STRICT, WITHOUT ROWID;

-- Remote workers -------------------------------------------------------------

-- What remote workers serve, or once served: graphs may name these actors while no worker is connected.
CREATE TABLE remote_actors (
    namespace   TEXT NOT NULL,
    name        TEXT NOT NULL,
    description TEXT NOT NULL,
    effect      TEXT NOT NULL,
    version     TEXT NOT NULL,
    args_schema BLOB NOT NULL,
    last_seen   INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

-- Who is connected where. Rows count while their executor has this incarnation and lives.
CREATE TABLE workers (
    executor_id  TEXT NOT NULL REFERENCES executors (id) ON DELETE CASCADE,
    incarnation  INTEGER NOT NULL,
    namespace    TEXT NOT NULL,
    worker_id    TEXT NOT NULL,
    actors       TEXT NOT NULL, -- a JSON list of names
    slots        INTEGER NOT NULL,
    busy         INTEGER NOT NULL,
    connect_time INTEGER NOT NULL,
    user_agent   TEXT NOT NULL,
    draining     INTEGER NOT NULL,
    PRIMARY KEY (executor_id, namespace, worker_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX workers_namespace ON workers (namespace);

-- How many calls of an actor each executor can pass on to its workers.
CREATE TABLE worker_routes (
    namespace   TEXT NOT NULL,
    actor       TEXT NOT NULL,
    executor_id TEXT NOT NULL REFERENCES executors (id) ON DELETE CASCADE,
    incarnation INTEGER NOT NULL,
    slots       INTEGER NOT NULL,
    busy        INTEGER NOT NULL,
    PRIMARY KEY (namespace, actor, executor_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX worker_routes_executor ON worker_routes (executor_id);

-- Schedules ------------------------------------------------------------------

CREATE TABLE schedules (
    namespace   TEXT NOT NULL,
    id          TEXT NOT NULL,
    uid         TEXT NOT NULL,
    revision    INTEGER NOT NULL,
    turns       INTEGER NOT NULL,
    skipped     INTEGER NOT NULL,
    done        INTEGER NOT NULL, -- the last time that was decided
    ahead       INTEGER NOT NULL, -- the last time that a backfill decided
    due         INTEGER NOT NULL, -- when an executor is to look after it
    create_time INTEGER NOT NULL,
    update_time INTEGER NOT NULL,
    spec        BLOB NOT NULL,
    recent      BLOB,
    principal   TEXT NOT NULL DEFAULT '', -- who wrote last, from the API key that was shown
    PRIMARY KEY (namespace, id)
) STRICT;
CREATE INDEX schedules_due ON schedules (due) WHERE due > 0;

-- What is started is large and changes seldom.
CREATE TABLE schedule_bodies (
    uid       TEXT PRIMARY KEY,
    namespace TEXT NOT NULL,
    body      BLOB
) STRICT;

-- Starts that wait, and those that were carried out for as long as it matters.
CREATE TABLE schedule_starts (
    turn       INTEGER NOT NULL,
    time       INTEGER NOT NULL,
    tried      INTEGER NOT NULL,
    actual     INTEGER NOT NULL,
    origin     INTEGER NOT NULL,
    overlap    INTEGER NOT NULL,
    uid        TEXT NOT NULL,
    namespace  TEXT NOT NULL,
    run_id     TEXT NOT NULL,
    result     TEXT NOT NULL,
    message    TEXT NOT NULL,
    request_id TEXT NOT NULL,
    principal  TEXT NOT NULL DEFAULT '', -- who asked for a start by hand, from the API key that was shown
    PRIMARY KEY (uid, turn)
) STRICT, WITHOUT ROWID;
CREATE INDEX schedule_starts_queue   ON schedule_starts (uid, turn) WHERE result = 'QUEUED';
CREATE INDEX schedule_starts_by_time ON schedule_starts (uid, time, turn) WHERE origin < 2;
CREATE INDEX schedule_starts_old     ON schedule_starts (actual) WHERE actual > 0;
-- A time of a schedule has one start that did not fail, whatever several executors decide at once.
CREATE UNIQUE INDEX schedule_starts_once    ON schedule_starts (uid, time) WHERE origin < 2 AND result <> 'FAILED';
CREATE UNIQUE INDEX schedule_starts_request ON schedule_starts (namespace, request_id) WHERE request_id <> '';

-- +goose Up
-- Times are microseconds since 1970 in UTC; 0 is no time.
CREATE TABLE incarnations (last INTEGER NOT NULL) STRICT;
INSERT INTO incarnations VALUES (0);

CREATE TABLE executors (
    id          TEXT PRIMARY KEY,
    incarnation INTEGER NOT NULL,
    heartbeat   INTEGER NOT NULL,
    addr        TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE graphs (
    namespace TEXT NOT NULL,
    hash      TEXT NOT NULL,
    body      BLOB NOT NULL,
    UNIQUE (namespace, hash)
) STRICT;

CREATE TABLE runs (
    run_id              TEXT NOT NULL UNIQUE,
    namespace           TEXT NOT NULL,
    owner_id            TEXT NOT NULL,
    owner_incarnation   INTEGER NOT NULL,
    last_seq            INTEGER NOT NULL,
    revision            INTEGER NOT NULL,
    create_time         INTEGER NOT NULL,
    start_time          INTEGER NOT NULL,
    end_time            INTEGER NOT NULL,
    update_time         INTEGER NOT NULL,
    wake_time           INTEGER NOT NULL,
    cancel_time         INTEGER NOT NULL,
    input_tokens        INTEGER NOT NULL,
    cached_input_tokens INTEGER NOT NULL,
    output_tokens       INTEGER NOT NULL,
    reasoning_tokens    INTEGER NOT NULL,
    calls               INTEGER NOT NULL,
    takeovers           INTEGER NOT NULL,
    machine_version     INTEGER NOT NULL,
    state               INTEGER NOT NULL,
    nodes_total         INTEGER NOT NULL,
    nodes_completed     INTEGER NOT NULL,
    nodes_failed        INTEGER NOT NULL,
    nodes_skipped       INTEGER NOT NULL,
    nodes_running       INTEGER NOT NULL,
    cancel_state        INTEGER NOT NULL, -- 0 none, 1 asked for, 2 seen by the owner
    holds_key           INTEGER NOT NULL,
    sampled             INTEGER NOT NULL,
    state_reason        TEXT NOT NULL,
    cancel_reason       TEXT NOT NULL,
    graph_name          TEXT NOT NULL,
    graph_hash          TEXT NOT NULL,
    task_id             TEXT NOT NULL,
    user_id             TEXT NOT NULL,
    chat_id             TEXT NOT NULL,
    thread_id           TEXT NOT NULL,
    business_key        TEXT NOT NULL,
    parent_run_id       TEXT NOT NULL,
    root_run_id         TEXT NOT NULL,
    trace_parent        TEXT NOT NULL,
    trace_state         TEXT NOT NULL
) STRICT;

CREATE INDEX runs_by_time     ON runs (namespace, create_time DESC, run_id DESC);
CREATE INDEX runs_by_state    ON runs (namespace, state, create_time DESC, run_id DESC);
CREATE INDEX runs_by_task     ON runs (namespace, task_id, create_time DESC, run_id DESC) WHERE task_id <> '';
CREATE INDEX runs_by_user     ON runs (namespace, user_id, create_time DESC, run_id DESC) WHERE user_id <> '';
CREATE INDEX runs_by_chat     ON runs (namespace, chat_id, create_time DESC, run_id DESC) WHERE chat_id <> '';
CREATE INDEX runs_by_thread   ON runs (namespace, thread_id, create_time DESC, run_id DESC) WHERE thread_id <> '';
CREATE INDEX runs_by_business ON runs (namespace, business_key, create_time DESC, run_id DESC) WHERE business_key <> '';
CREATE INDEX runs_by_parent   ON runs (namespace, parent_run_id, create_time DESC, run_id DESC) WHERE parent_run_id <> '';
CREATE UNIQUE INDEX runs_key_holder ON runs (namespace, business_key) WHERE holds_key = 1;
CREATE INDEX runs_open ON runs (owner_id, run_id) WHERE state < 6;

CREATE TABLE run_details (
    run_id      TEXT NOT NULL UNIQUE,
    namespace   TEXT NOT NULL,
    labels      BLOB,
    metadata    BLOB,
    error       BLOB,
    args        BLOB,
    named       BLOB,
    context     BLOB,
    attachments BLOB,
    result      BLOB,
    outputs     BLOB
) STRICT;

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

CREATE TABLE snapshots (
    run_id    TEXT NOT NULL UNIQUE,
    namespace TEXT NOT NULL,
    seq       INTEGER NOT NULL,
    data      BLOB NOT NULL
) STRICT;

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
CREATE INDEX outbox_due ON outbox (next_at);

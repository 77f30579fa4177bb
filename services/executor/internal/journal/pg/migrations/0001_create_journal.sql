-- +goose Up
CREATE SEQUENCE executor_incarnations;

CREATE TABLE executors (
    id          text COLLATE "C" PRIMARY KEY,
    incarnation bigint      NOT NULL DEFAULT nextval('executor_incarnations'),
    heartbeat   timestamptz NOT NULL DEFAULT now(),
    addr        text        NOT NULL
);

-- Every commit calls this first: it keeps the executor's row from being taken over until the
-- commit is through, and ends the whole commit if it has been taken over already. The lock is the
-- weakest that a delete or FOR UPDATE waits for, so that heartbeats need not wait for commits.
-- +goose StatementBegin
CREATE FUNCTION executor_fence(owner text, life bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM executors WHERE id = owner AND incarnation = life FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'executor is fenced' USING ERRCODE = 'EG001';
    END IF;
END
$$;
-- +goose StatementEnd

CREATE TABLE graphs (
    namespace text COLLATE "C" NOT NULL,
    hash      text COLLATE "C" NOT NULL,
    body      bytea NOT NULL,
    PRIMARY KEY (namespace, hash)
);

-- What changes with every commit is kept narrow and apart from what does not, so that updates stay
-- within a page and touch no index unless the state changes.
CREATE TABLE runs (
    run_id              text COLLATE "C" PRIMARY KEY,
    namespace           text COLLATE "C" NOT NULL,
    owner_id            text COLLATE "C" NOT NULL,
    owner_incarnation   bigint NOT NULL,
    last_seq            bigint NOT NULL,
    revision            bigint NOT NULL,
    create_time         timestamptz NOT NULL,
    start_time          timestamptz,
    end_time            timestamptz,
    update_time         timestamptz,
    wake_time           timestamptz,
    cancel_time         timestamptz,
    input_tokens        bigint NOT NULL,
    cached_input_tokens bigint NOT NULL,
    output_tokens       bigint NOT NULL,
    reasoning_tokens    bigint NOT NULL,
    calls               bigint NOT NULL,
    takeovers           integer NOT NULL,
    machine_version     integer NOT NULL,
    state               integer NOT NULL,
    nodes_total         integer NOT NULL,
    nodes_completed     integer NOT NULL,
    nodes_failed        integer NOT NULL,
    nodes_skipped       integer NOT NULL,
    nodes_running       integer NOT NULL,
    cancel_state        smallint NOT NULL, -- 0 none, 1 asked for, 2 seen by the owner
    holds_key           boolean NOT NULL,
    sampled             boolean NOT NULL,
    state_reason        text NOT NULL,
    cancel_reason       text NOT NULL,
    graph_name          text NOT NULL,
    graph_hash          text COLLATE "C" NOT NULL,
    task_id             text COLLATE "C" NOT NULL,
    user_id             text COLLATE "C" NOT NULL,
    chat_id             text COLLATE "C" NOT NULL,
    thread_id           text COLLATE "C" NOT NULL,
    business_key        text COLLATE "C" NOT NULL,
    parent_run_id       text COLLATE "C" NOT NULL,
    root_run_id         text COLLATE "C" NOT NULL,
    trace_parent        text NOT NULL,
    trace_state         text NOT NULL
) WITH (fillfactor = 75);

CREATE INDEX runs_by_time     ON runs (namespace, create_time DESC, run_id DESC);
CREATE INDEX runs_by_state    ON runs (namespace, state, create_time DESC, run_id DESC);
CREATE INDEX runs_by_task     ON runs (namespace, task_id, create_time DESC, run_id DESC) WHERE task_id <> '';
CREATE INDEX runs_by_user     ON runs (namespace, user_id, create_time DESC, run_id DESC) WHERE user_id <> '';
CREATE INDEX runs_by_chat     ON runs (namespace, chat_id, create_time DESC, run_id DESC) WHERE chat_id <> '';
CREATE INDEX runs_by_thread   ON runs (namespace, thread_id, create_time DESC, run_id DESC) WHERE thread_id <> '';
CREATE INDEX runs_by_business ON runs (namespace, business_key, create_time DESC, run_id DESC) WHERE business_key <> '';
CREATE INDEX runs_by_parent   ON runs (namespace, parent_run_id, create_time DESC, run_id DESC) WHERE parent_run_id <> '';
CREATE UNIQUE INDEX runs_key_holder ON runs (namespace, business_key) WHERE holds_key;
-- Open runs by owner: the scans of take-over, release and cancels.
CREATE INDEX runs_open ON runs (owner_id, run_id) WHERE state < 6;

CREATE TABLE run_details (
    run_id      text COLLATE "C" PRIMARY KEY,
    namespace   text COLLATE "C" NOT NULL,
    labels      bytea,
    metadata    bytea,
    error       bytea,
    args        bytea,
    named       bytea,
    context     bytea,
    attachments bytea,
    result      bytea,
    outputs     bytea
);

-- Money is booked by acknowledged outbox items and never by commits, so the two never wait for each other.
CREATE TABLE run_costs (
    run_id         text COLLATE "C" PRIMARY KEY,
    namespace      text COLLATE "C" NOT NULL,
    cost_nano_usd  bigint NOT NULL,
    unpriced_calls bigint NOT NULL
);

CREATE TABLE run_labels (
    run_id      text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    namespace   text COLLATE "C" NOT NULL,
    value       text COLLATE "C" NOT NULL,
    create_time timestamptz NOT NULL,
    PRIMARY KEY (run_id, key)
);
CREATE INDEX run_labels_by_value ON run_labels (namespace, key, value, create_time DESC, run_id DESC);

CREATE TABLE events (
    seq       bigint NOT NULL,
    time      timestamptz NOT NULL,
    kind      integer NOT NULL,
    visit     integer NOT NULL CHECK (visit >= 0),
    run_id    text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    node_id   text NOT NULL,
    data      bytea,
    PRIMARY KEY (run_id, seq)
);

CREATE TABLE snapshots (
    run_id    text COLLATE "C" PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    seq       bigint NOT NULL,
    data      bytea NOT NULL
);

CREATE TABLE request_ids (
    namespace   text COLLATE "C" NOT NULL,
    method      text COLLATE "C" NOT NULL,
    request_id  text COLLATE "C" NOT NULL,
    body_hash   text NOT NULL,
    run_id      text NOT NULL,
    create_time timestamptz NOT NULL,
    PRIMARY KEY (namespace, method, request_id)
);
CREATE INDEX request_ids_by_time ON request_ids (create_time);

CREATE TABLE outbox (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    seq        bigint NOT NULL,
    next_at    timestamptz NOT NULL DEFAULT now(),
    ordinal    integer NOT NULL,
    attempts   integer NOT NULL DEFAULT 0,
    run_id     text COLLATE "C" NOT NULL,
    namespace  text COLLATE "C" NOT NULL,
    kind       text NOT NULL,
    last_error text NOT NULL DEFAULT '',
    body       bytea,
    UNIQUE (run_id, seq, ordinal)
);
CREATE INDEX outbox_due ON outbox (next_at);

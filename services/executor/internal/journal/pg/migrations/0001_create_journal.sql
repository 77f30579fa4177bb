-- +goose Up
-- Ids, hashes and names compare byte by byte (COLLATE "C"), so that their order is that of Go and of SQLite.
-- Columns of fixed width go before those of variable width where rows are many: that spares padding.

-- Executors ------------------------------------------------------------------

CREATE SEQUENCE executor_incarnations;

-- One row per living executor. An incarnation belongs to one registration, so the row of a restarted executor
-- is not that of the process before it.
CREATE TABLE executors (
    id          text COLLATE "C" PRIMARY KEY,
    incarnation bigint      NOT NULL DEFAULT nextval('executor_incarnations'),
    heartbeat   timestamptz NOT NULL DEFAULT now(),
    addr        text        NOT NULL,
    -- The name under which the process works jobs: the jobs that it dies with become available again at once.
    worker      text        NOT NULL DEFAULT ''
);

-- Every commit calls this first. It keeps the executor's row from being taken over until the commit is
-- through, and ends the commit if the row has been taken over already. The lock is the weakest that a delete
-- or FOR UPDATE waits for, so heartbeats need not wait for commits.
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

-- The key that executors sign attempt token with where no key is configured, and accept in any case. The first
-- executor makes the one row.
CREATE TABLE token_key (
    id  integer PRIMARY KEY CHECK (id = 1),
    key bytea NOT NULL
);

-- Runs -----------------------------------------------------------------------

-- Graphs are kept once per namespace and content.
CREATE TABLE graphs (
    namespace text COLLATE "C" NOT NULL,
    hash      text COLLATE "C" NOT NULL,
    body      bytea NOT NULL,
    -- When a run last took the graph, give or take an hour. A graph that no run has taken for days and none
    -- refers to is removed.
    use_time  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace, hash)
);

-- What changes with every commit is kept narrow and apart from what does not, so that updates stay within a
-- page and touch no index unless the state changes.
CREATE TABLE runs (
    run_id              text COLLATE "C" PRIMARY KEY,
    namespace           text COLLATE "C" NOT NULL,
    owner_id            text COLLATE "C" NOT NULL, -- empty while the run waits without an owner
    owner_incarnation   bigint NOT NULL,
    last_seq            bigint NOT NULL,
    revision            bigint NOT NULL,
    graph_revision      bigint NOT NULL DEFAULT 0,
    create_time         timestamptz NOT NULL,
    start_time          timestamptz,
    end_time            timestamptz,
    update_time         timestamptz,
    wake_time           timestamptz,
    cancel_time         timestamptz,
    deadline            timestamptz,
    input_tokens        bigint NOT NULL,
    cached_input_tokens bigint NOT NULL,
    output_tokens       bigint NOT NULL,
    reasoning_tokens    bigint NOT NULL,
    calls               bigint NOT NULL,
    state               integer NOT NULL,
    priority            integer NOT NULL DEFAULT 0,
    takeovers           integer NOT NULL,
    machine_version     integer NOT NULL,
    nodes_total         integer NOT NULL,
    nodes_completed     integer NOT NULL,
    nodes_failed        integer NOT NULL,
    nodes_skipped       integer NOT NULL,
    nodes_running       integer NOT NULL,
    holds_key           boolean NOT NULL,
    sampled             boolean NOT NULL,
    state_reason        text NOT NULL,
    cancel_reason       text NOT NULL,
    -- What a run that is suspected of crashing its owners is at work with, and what it was at work with when
    -- one of them crashed.
    doing               text NOT NULL DEFAULT '',
    died_doing          text NOT NULL DEFAULT '',
    graph_name          text NOT NULL,
    graph_hash          text COLLATE "C" NOT NULL,
    -- The graph that the run began with, once it has another.
    first_graph         text COLLATE "C" NOT NULL DEFAULT '',
    task_id             text COLLATE "C" NOT NULL,
    user_id             text COLLATE "C" NOT NULL,
    chat_id             text COLLATE "C" NOT NULL,
    thread_id           text COLLATE "C" NOT NULL,
    business_key        text COLLATE "C" NOT NULL,
    parent_run_id       text COLLATE "C" NOT NULL,
    root_run_id         text COLLATE "C" NOT NULL,
    forked_from         text COLLATE "C" NOT NULL DEFAULT '',
    schedule_id         text COLLATE "C" NOT NULL DEFAULT '',
    trace_parent        text NOT NULL,
    trace_state         text NOT NULL
) WITH (fillfactor = 75);

-- States: 1 pending, 2 running, 3 waiting, 4 paused, 5 quarantined, 6 completed, 7 failed, 8 canceled. One
-- index lists runs by state, and, state by state, by time, and finds those that ended. The newest come last,
-- where there is room without moving others.
CREATE INDEX runs_listed      ON runs (namespace, state, create_time, run_id);
CREATE INDEX runs_by_task     ON runs (namespace, task_id, create_time DESC, run_id DESC) WHERE task_id <> '';
CREATE INDEX runs_by_user     ON runs (namespace, user_id, create_time DESC, run_id DESC) WHERE user_id <> '';
CREATE INDEX runs_by_chat     ON runs (namespace, chat_id, create_time DESC, run_id DESC) WHERE chat_id <> '';
CREATE INDEX runs_by_thread   ON runs (namespace, thread_id, create_time DESC, run_id DESC) WHERE thread_id <> '';
CREATE INDEX runs_by_business ON runs (namespace, business_key, create_time DESC, run_id DESC) WHERE business_key <> '';
CREATE INDEX runs_by_parent   ON runs (namespace, parent_run_id, create_time DESC, run_id DESC) WHERE parent_run_id <> '';
CREATE INDEX runs_by_schedule ON runs (namespace, schedule_id, create_time DESC, run_id DESC) WHERE schedule_id <> '';
CREATE UNIQUE INDEX runs_key_holder ON runs (namespace, business_key) WHERE holds_key;
CREATE INDEX runs_open_by_schedule  ON runs (namespace, schedule_id) WHERE schedule_id <> '' AND state < 6;

-- Parked runs have no owner, and are in none of the indexes that the scans of owners use.
CREATE INDEX runs_owned    ON runs (owner_id, owner_incarnation, run_id) WHERE state < 6 AND owner_id <> '';
CREATE INDEX runs_released ON runs (run_id) WHERE state = 2 AND owner_id = '';
-- Runs that wait for room in their namespace, in the order in which they get it.
CREATE INDEX runs_pending  ON runs (namespace, priority, create_time, run_id) WHERE state = 1 AND owner_id = '' AND wake_time IS NULL;
-- Runs that are due at a time, paused ones that go on by themselves included.
CREATE INDEX runs_wakes    ON runs (wake_time) WHERE state IN (1, 3, 4) AND owner_id = '' AND wake_time IS NOT NULL;
-- Canceled runs that nobody owns are taken over however full executors are.
CREATE INDEX runs_canceled ON runs (namespace, run_id) WHERE state < 6 AND cancel_time IS NOT NULL;

-- What a run begins and ends with. Half a page is left for the result, so that no index is touched when it
-- comes.
CREATE TABLE run_details (
    run_id      text COLLATE "C" PRIMARY KEY,
    namespace   text COLLATE "C" NOT NULL,
    labels      bytea,
    metadata    bytea,
    args        bytea,
    named       bytea,
    context     bytea,
    attachments bytea,
    result      bytea,
    outputs     bytea,
    error       bytea
) WITH (fillfactor = 50);

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

-- Events ---------------------------------------------------------------------

-- The journal. Its rows lie in partitions by the time of their run's id. events_first holds all ids before
-- the bound of the first week. events_default holds the ids that have no other partition, and stays empty.
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
) PARTITION BY RANGE (run_id);

-- The least id that a run of this time can have.
-- +goose StatementBegin
CREATE FUNCTION run_id_at(at timestamptz) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT 'run_' || string_agg(substr('0123456789abcdefghjkmnpqrstvwxyz', ((ms >> (5 * i)) & 31)::int + 1, 1), '' ORDER BY i DESC) || repeat('0', 16)
    FROM (SELECT floor(extract(epoch FROM at) * 1000)::bigint AS ms) t, generate_series(0, 9) AS i
$$;
-- +goose StatementEnd

-- Executors make later partitions ahead of time.
-- +goose StatementBegin
DO $$
DECLARE
    bound timestamptz := date_trunc('day', now(), 'UTC') + interval '2 days';
    name  text;
BEGIN
    EXECUTE format('CREATE TABLE events_first PARTITION OF events FOR VALUES FROM (MINVALUE) TO (%L)', run_id_at(bound));
    FOR i IN 1..2 LOOP
        name := 'events_to_' || to_char((bound + interval '7 days') AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISS');
        EXECUTE format('CREATE TABLE %I PARTITION OF events FOR VALUES FROM (%L) TO (%L)', name, run_id_at(bound), run_id_at(bound + interval '7 days'));
        bound := bound + interval '7 days';
    END LOOP;
END
$$;
-- +goose StatementEnd
CREATE TABLE events_default PARTITION OF events DEFAULT;

-- A cache of positions, which follow from the events.
CREATE TABLE snapshots (
    run_id    text COLLATE "C" PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    seq       bigint NOT NULL,
    data      bytea NOT NULL
);

-- Where the runs are that were taken out of the database.
CREATE TABLE archives (
    namespace    text COLLATE "C" NOT NULL,
    run_id       text COLLATE "C" NOT NULL,
    place        text NOT NULL,
    archive_time timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace, run_id)
);

-- What comes in and goes out -------------------------------------------------

-- Which starts were carried out, so that a repeated request starts nothing.
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

-- What happens outside of a run and must be taken into account by it.
CREATE TABLE commands (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    time      timestamptz NOT NULL,
    run_id    text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    body      bytea,
    UNIQUE (run_id, kind, key)
);

-- Interrupts of runs. State 1 is open.
CREATE TABLE interrupts (
    id            text COLLATE "C" PRIMARY KEY,
    namespace     text COLLATE "C" NOT NULL,
    run_id        text COLLATE "C" NOT NULL,
    root_run_id   text COLLATE "C" NOT NULL,
    node_id       text NOT NULL,
    visit         integer NOT NULL,
    item          integer NOT NULL,
    state         integer NOT NULL,
    create_time   timestamptz NOT NULL,
    expire_time   timestamptz,
    close_time    timestamptz,
    prompt        bytea,
    schema        bytea,
    approve       bytea,
    of_agent      boolean NOT NULL DEFAULT false, -- whether an agent's own loop asks
    binds         text NOT NULL DEFAULT '', -- what an approval covers besides what it asks
    default_value bytea,
    decision      text NOT NULL DEFAULT '',
    answer        bytea,
    closed_by     text NOT NULL DEFAULT '',
    principal     text NOT NULL DEFAULT ''  -- who answered, from the API key that was shown
);
CREATE INDEX interrupts_listed  ON interrupts (namespace, state, create_time, id);
CREATE INDEX interrupts_by_root ON interrupts (root_run_id, create_time DESC, id DESC);
CREATE INDEX interrupts_by_run  ON interrupts (run_id);

-- What other services must learn of: written with its cause, delivered at least once.
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
-- By namespace, in the order in which items are due: claims take from each namespace in turn.
CREATE INDEX outbox_by_namespace ON outbox (namespace, next_at, id);

-- Threads --------------------------------------------------------------------

-- What an agent said, heard and decided, in order. A fork has its parent's items up to parent_seq. No commit
-- that appends changes the row.
CREATE TABLE threads (
    thread_id   text COLLATE "C" PRIMARY KEY,
    namespace   text COLLATE "C" NOT NULL,
    parent_seq  bigint NOT NULL,
    create_time timestamptz NOT NULL,
    use_time    timestamptz NOT NULL, -- when it was made or held last
    hide_time   timestamptz,          -- since when it is deleted
    lifetime    integer NOT NULL,
    depth       integer NOT NULL,
    key         text COLLATE "C" NOT NULL,
    agent       text COLLATE "C" NOT NULL,
    title       text NOT NULL,
    parent_id   text COLLATE "C" NOT NULL,
    holder      text COLLATE "C" NOT NULL,
    below       text COLLATE "C" NOT NULL -- the runs below the holder that it is lent to
) WITH (fillfactor = 75);
CREATE UNIQUE INDEX threads_by_key ON threads (namespace, key) WHERE key <> '';
CREATE INDEX threads_listed    ON threads (namespace, create_time DESC, thread_id DESC) WHERE hide_time IS NULL;
CREATE INDEX threads_by_agent  ON threads (namespace, agent, create_time DESC, thread_id DESC) WHERE agent <> '' AND hide_time IS NULL;
CREATE INDEX threads_by_parent ON threads (parent_id, create_time DESC, thread_id DESC) WHERE parent_id <> '';
CREATE INDEX threads_by_holder ON threads (holder) WHERE holder <> '';
CREATE INDEX threads_fleeting  ON threads (thread_id) WHERE lifetime > 1 AND hide_time IS NULL;
CREATE INDEX threads_hidden    ON threads (thread_id) WHERE hide_time IS NOT NULL;

CREATE TABLE thread_items (
    seq       bigint NOT NULL,
    time      timestamptz NOT NULL,
    kind      integer NOT NULL,
    visit     integer NOT NULL,
    weight    bigint NOT NULL, -- what it counts in thread_usage
    thread_id text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    run_id    text COLLATE "C" NOT NULL,
    node_id   text NOT NULL,
    brief     bytea,
    body      bytea,
    PRIMARY KEY (thread_id, seq)
);

-- How many threads a namespace has, and the bytes of their items and messages: the sum of its rows. Commits of
-- several executors add to different ones.
CREATE TABLE thread_usage (
    namespace text COLLATE "C" NOT NULL,
    shard     integer NOT NULL,
    threads   bigint NOT NULL,
    bytes     bigint NOT NULL,
    PRIMARY KEY (namespace, shard)
) WITH (fillfactor = 50);

-- Messages to the agents of threads. State 1 waits.
CREATE TABLE thread_turns (
    number       bigint NOT NULL,
    state        integer NOT NULL,
    create_time  timestamptz NOT NULL,
    start_time   timestamptz,
    thread_id    text COLLATE "C" NOT NULL,
    namespace    text COLLATE "C" NOT NULL,
    run_id       text COLLATE "C" NOT NULL,
    interrupt_id text COLLATE "C" NOT NULL DEFAULT '',
    asked_by     text COLLATE "C" NOT NULL DEFAULT '',
    principal    text NOT NULL,
    answers_any  boolean NOT NULL DEFAULT false, -- whether its sender may answer what others than the agent ask
    error        text NOT NULL DEFAULT '',
    message      bytea,
    PRIMARY KEY (thread_id, number)
);
CREATE INDEX thread_turns_queued ON thread_turns (create_time) WHERE state = 1;
CREATE INDEX thread_turns_next   ON thread_turns (thread_id, number) WHERE state = 1;

-- What agents keep beyond their threads. Of an agent and a user the oldest give way.
CREATE TABLE facts (
    time      timestamptz NOT NULL, -- when it was learned last
    namespace text COLLATE "C" NOT NULL,
    fact_id   text COLLATE "C" NOT NULL,
    agent     text COLLATE "C" NOT NULL,
    user_id   text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    run_id    text COLLATE "C" NOT NULL,
    name      text NOT NULL,
    content   bytea NOT NULL,
    PRIMARY KEY (namespace, fact_id)
);
CREATE INDEX facts_listed ON facts (namespace, time DESC, fact_id DESC);
CREATE INDEX facts_of     ON facts (namespace, agent, user_id, time DESC, fact_id DESC);

-- Values ---------------------------------------------------------------------

-- Values that are kept outside of the database. Each has its row before it is stored.
CREATE TABLE blobs (
    namespace  text COLLATE "C" NOT NULL,
    hash       bytea NOT NULL,
    size       bigint NOT NULL,
    touch_time timestamptz NOT NULL DEFAULT now(),
    doom_time  timestamptz,
    PRIMARY KEY (namespace, hash)
);
CREATE INDEX blobs_by_touch ON blobs (touch_time);

-- Which runs refer to them. What a commit refers to must have a row.
CREATE TABLE blob_refs (
    run_id    text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    hash      bytea NOT NULL,
    snapshot  boolean NOT NULL,
    PRIMARY KEY (run_id, hash, snapshot),
    FOREIGN KEY (namespace, hash) REFERENCES blobs (namespace, hash)
);
CREATE INDEX blob_refs_by_hash      ON blob_refs (namespace, hash);
CREATE INDEX blob_refs_of_snapshots ON blob_refs (run_id) WHERE snapshot;

-- What calls of nodes with a cache returned. A crash of the database may lose it, and then the calls are made
-- again.
CREATE UNLOGGED TABLE kept_outcomes (
    namespace   text COLLATE "C" NOT NULL,
    key         bytea NOT NULL,
    outcome     bytea NOT NULL,
    expire_time timestamptz NOT NULL,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX kept_outcomes_by_end ON kept_outcomes (expire_time);

-- The tools that each configured MCP server listed last.
CREATE TABLE mcp_servers (
    name  text COLLATE "C" PRIMARY KEY,
    tools bytea NOT NULL
);

-- Limits ---------------------------------------------------------------------

CREATE TABLE limits (
    namespace        text COLLATE "C" NOT NULL,
    name             text COLLATE "C" NOT NULL,
    max_concurrent   integer     NOT NULL,
    max_rate         integer     NOT NULL,
    rate_interval_us bigint      NOT NULL,
    max_open_runs    bigint      NOT NULL,
    max_pending_runs bigint      NOT NULL,
    max_fan_out      integer     NOT NULL,
    max_bytes        bigint      NOT NULL,
    -- How long the namespace keeps its runs after their end, where it says so itself.
    retention_us     bigint      NOT NULL DEFAULT 0,
    update_time      timestamptz NOT NULL,
    principal        text        NOT NULL DEFAULT '', -- who wrote last, from the API key that was shown
    PRIMARY KEY (namespace, name)
);

-- One row: it rises with every change, so that executors see cheaply whether what they know is still so.
CREATE TABLE limits_version (version bigint NOT NULL);
INSERT INTO limits_version VALUES (1);

-- The last exchange of each executor. One that comes after a later one writes nothing.
CREATE TABLE limit_turns (
    owner_id    text COLLATE "C" PRIMARY KEY,
    incarnation bigint NOT NULL,
    turn        bigint NOT NULL
) WITH (fillfactor = 50);

-- What each executor holds and waits for. A row counts only while its executor is registered with this
-- incarnation, so it is void the moment that the executor is taken over or leaves.
CREATE TABLE limit_holdings (
    namespace         text COLLATE "C" NOT NULL,
    name              text COLLATE "C" NOT NULL,
    owner_id          text COLLATE "C" NOT NULL,
    owner_incarnation bigint      NOT NULL,
    since             timestamptz NOT NULL,
    asked             timestamptz NOT NULL,
    held              integer     NOT NULL,
    waiting           integer     NOT NULL,
    runs              text        NOT NULL,
    PRIMARY KEY (namespace, name, owner_id)
) WITH (fillfactor = 75);

-- When the last call that a rate allowed was to begin.
CREATE TABLE limit_rates (
    namespace text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    last      timestamptz NOT NULL,
    PRIMARY KEY (namespace, name)
) WITH (fillfactor = 50);

-- Accounts at model providers -------------------------------------------------

-- What an account gave in the last interval, and whose turn it is, as JSON. An exchange locks the row.
CREATE TABLE model_accounts (
    name        text COLLATE "C" PRIMARY KEY,
    state       text        NOT NULL,
    update_time timestamptz NOT NULL
) WITH (fillfactor = 50);

-- What each executor has under way at an account and waits for. A row counts only while its executor is
-- registered with this incarnation. The turn is that of the last corrections that were applied.
CREATE TABLE model_account_waits (
    account           text COLLATE "C" NOT NULL,
    owner_id          text COLLATE "C" NOT NULL,
    owner_incarnation bigint      NOT NULL,
    turn              bigint      NOT NULL,
    held              integer     NOT NULL,
    asked             timestamptz NOT NULL,
    waits             text        NOT NULL,
    PRIMARY KEY (account, owner_id)
) WITH (fillfactor = 50);

-- Remote workers -------------------------------------------------------------

-- What remote workers serve, or once served: graphs may name these actors while no worker is connected.
CREATE TABLE remote_actors (
    namespace   text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    description text  NOT NULL,
    effect      text  NOT NULL,
    version     text  NOT NULL,
    args_schema bytea NOT NULL,
    last_seen   timestamptz NOT NULL,
    PRIMARY KEY (namespace, name)
);

-- Who is connected where. Rows count while their executor has this incarnation and lives.
CREATE TABLE workers (
    executor_id  text COLLATE "C" NOT NULL REFERENCES executors (id) ON DELETE CASCADE,
    incarnation  bigint NOT NULL,
    namespace    text COLLATE "C" NOT NULL,
    worker_id    text COLLATE "C" NOT NULL,
    actors       text[]  NOT NULL,
    slots        integer NOT NULL,
    busy         integer NOT NULL,
    connect_time timestamptz NOT NULL,
    user_agent   text    NOT NULL,
    draining     boolean NOT NULL,
    PRIMARY KEY (executor_id, namespace, worker_id)
);
CREATE INDEX workers_namespace ON workers (namespace);

-- How many calls of an actor each executor can pass on to its workers.
CREATE TABLE worker_routes (
    namespace   text COLLATE "C" NOT NULL,
    actor       text COLLATE "C" NOT NULL,
    executor_id text COLLATE "C" NOT NULL REFERENCES executors (id) ON DELETE CASCADE,
    incarnation bigint  NOT NULL,
    slots       integer NOT NULL,
    busy        integer NOT NULL,
    PRIMARY KEY (namespace, actor, executor_id)
);
CREATE INDEX worker_routes_executor ON worker_routes (executor_id);

-- Schedules ------------------------------------------------------------------

CREATE TABLE schedules (
    namespace   text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    uid         text COLLATE "C" NOT NULL,
    revision    bigint NOT NULL,
    turns       bigint NOT NULL,
    skipped     bigint NOT NULL,
    done        timestamptz NOT NULL, -- the last time that was decided
    ahead       timestamptz,          -- the last time that a backfill decided
    due         timestamptz,          -- when an executor is to look after it
    create_time timestamptz NOT NULL,
    update_time timestamptz NOT NULL,
    spec        bytea NOT NULL,
    recent      bytea,
    principal   text NOT NULL DEFAULT '', -- who wrote last, from the API key that was shown
    PRIMARY KEY (namespace, id)
) WITH (fillfactor = 75);
CREATE INDEX schedules_due ON schedules (due) WHERE due IS NOT NULL;

-- What is started is large and changes seldom.
CREATE TABLE schedule_bodies (
    uid       text COLLATE "C" PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    body      bytea
);

-- Starts that wait, and those that were carried out for as long as it matters.
CREATE TABLE schedule_starts (
    turn       bigint NOT NULL,
    time       timestamptz NOT NULL,
    tried      timestamptz,
    actual     timestamptz,
    origin     integer NOT NULL,
    overlap    integer NOT NULL,
    uid        text COLLATE "C" NOT NULL,
    namespace  text COLLATE "C" NOT NULL,
    run_id     text COLLATE "C" NOT NULL,
    result     text NOT NULL,
    message    text NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    principal  text NOT NULL DEFAULT '', -- who asked for a start by hand, from the API key that was shown
    PRIMARY KEY (uid, turn)
);
CREATE INDEX schedule_starts_queue   ON schedule_starts (uid, turn) WHERE result = 'QUEUED';
CREATE INDEX schedule_starts_by_time ON schedule_starts (uid, time, turn) WHERE origin < 2;
CREATE INDEX schedule_starts_old     ON schedule_starts (actual) WHERE actual IS NOT NULL;
-- A time of a schedule has one start that did not fail, whatever several executors decide at once.
CREATE UNIQUE INDEX schedule_starts_once    ON schedule_starts (uid, time) WHERE origin < 2 AND result <> 'FAILED';
CREATE UNIQUE INDEX schedule_starts_request ON schedule_starts (namespace, request_id) WHERE request_id <> '';

-- +goose Up
CREATE TABLE limits (
    namespace        text COLLATE "C" NOT NULL,
    name             text COLLATE "C" NOT NULL,
    rate_interval_us bigint      NOT NULL,
    max_open_runs    bigint      NOT NULL,
    max_bytes        bigint      NOT NULL,
    max_pending_runs bigint      NOT NULL,
    update_time      timestamptz NOT NULL,
    max_concurrent   integer     NOT NULL,
    max_rate         integer     NOT NULL,
    max_fan_out      integer     NOT NULL,
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

-- What each executor holds and waits for. A row counts only while its executor is registered with this incarnation, so it is
-- void the moment that the executor is taken over or leaves.
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

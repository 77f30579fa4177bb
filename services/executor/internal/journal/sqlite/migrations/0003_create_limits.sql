-- +goose Up
CREATE TABLE limits (
    namespace        TEXT NOT NULL,
    name             TEXT NOT NULL,
    max_concurrent   INTEGER NOT NULL,
    max_rate         INTEGER NOT NULL,
    rate_interval_us INTEGER NOT NULL,
    max_open_runs    INTEGER NOT NULL,
    max_fan_out      INTEGER NOT NULL,
    max_bytes        INTEGER NOT NULL,
    max_pending_runs INTEGER NOT NULL,
    update_time      INTEGER NOT NULL,
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

-- What each executor holds and waits for. A row counts only while its executor is registered with this incarnation, so it is
-- void the moment that the executor is taken over or leaves.
CREATE TABLE limit_holdings (
    namespace         TEXT NOT NULL,
    name              TEXT NOT NULL,
    owner_id          TEXT NOT NULL,
    owner_incarnation INTEGER NOT NULL,
    held              INTEGER NOT NULL,
    waiting           INTEGER NOT NULL,
    since             INTEGER NOT NULL,
    asked             INTEGER NOT NULL,
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

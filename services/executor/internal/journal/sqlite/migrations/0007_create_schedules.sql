-- +goose Up
CREATE TABLE schedules (
    namespace   TEXT NOT NULL,
    id          TEXT NOT NULL,
    uid         TEXT NOT NULL,
    revision    INTEGER NOT NULL,
    turns       INTEGER NOT NULL,
    skipped     INTEGER NOT NULL,
    done        INTEGER NOT NULL, -- the last time that was decided
    ahead       INTEGER NOT NULL, -- the last time that a backfill decided
    due         INTEGER NOT NULL, -- when somebody is to look after it
    create_time INTEGER NOT NULL,
    update_time INTEGER NOT NULL,
    spec        BLOB NOT NULL,
    recent      BLOB,
    PRIMARY KEY (namespace, id)
) STRICT;
CREATE INDEX schedules_due ON schedules (due) WHERE due <> 0;

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
    PRIMARY KEY (uid, turn)
) STRICT, WITHOUT ROWID;
CREATE INDEX schedule_starts_queue   ON schedule_starts (uid, turn) WHERE result = 'QUEUED';
CREATE INDEX schedule_starts_by_time ON schedule_starts (uid, time, turn) WHERE origin < 2;
CREATE INDEX schedule_starts_old     ON schedule_starts (actual) WHERE actual <> 0;
CREATE UNIQUE INDEX schedule_starts_request ON schedule_starts (namespace, request_id) WHERE request_id <> '';

CREATE INDEX runs_open_by_schedule ON runs (namespace, schedule_id) WHERE schedule_id <> '' AND state < 6;

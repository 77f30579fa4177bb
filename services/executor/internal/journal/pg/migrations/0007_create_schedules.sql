-- +goose Up
CREATE TABLE schedules (
    namespace   text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    uid         text COLLATE "C" NOT NULL,
    revision    bigint NOT NULL,
    turns       bigint NOT NULL,
    skipped     bigint NOT NULL,
    done        timestamptz NOT NULL, -- the last time that was decided
    ahead       timestamptz,          -- the last time that a backfill decided
    due         timestamptz,          -- when somebody is to look after it
    create_time timestamptz NOT NULL,
    update_time timestamptz NOT NULL,
    spec        bytea NOT NULL,
    recent      bytea,
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
    PRIMARY KEY (uid, turn)
);
CREATE INDEX schedule_starts_queue   ON schedule_starts (uid, turn) WHERE result = 'QUEUED';
CREATE INDEX schedule_starts_by_time ON schedule_starts (uid, time, turn) WHERE origin < 2;
CREATE INDEX schedule_starts_old     ON schedule_starts (actual) WHERE actual IS NOT NULL;
CREATE UNIQUE INDEX schedule_starts_request ON schedule_starts (namespace, request_id) WHERE request_id <> '';

CREATE INDEX runs_open_by_schedule ON runs (namespace, schedule_id) WHERE schedule_id <> '' AND state < 6;

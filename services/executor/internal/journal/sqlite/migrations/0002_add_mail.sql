-- +goose Up
-- What happens outside of a run and must be taken into account by it.
CREATE TABLE mail (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    time      INTEGER NOT NULL,
    run_id    TEXT NOT NULL,
    namespace TEXT NOT NULL,
    kind      TEXT NOT NULL,
    key       TEXT NOT NULL,
    body      BLOB,
    UNIQUE (run_id, kind, key)
) STRICT;

-- A cancel is a piece of mail. The column that told of it before is kept for a while, and read by nothing.
INSERT INTO mail (time, run_id, namespace, kind, key, body)
SELECT cancel_time, run_id, namespace, 'CANCEL', '', CAST(cancel_reason AS BLOB) FROM runs WHERE cancel_state = 1 AND state < 6;

ALTER TABLE runs ADD COLUMN graph_revision INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN deadline       INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN priority       INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN forked_from    TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN schedule_id    TEXT NOT NULL DEFAULT '';

CREATE INDEX runs_by_schedule ON runs (namespace, schedule_id, create_time DESC, run_id DESC) WHERE schedule_id <> '';

-- Parked runs have no owner, and are in none of the indexes that the scans of owners use.
DROP INDEX runs_open;
CREATE INDEX runs_owned    ON runs (owner_id, owner_incarnation, run_id) WHERE state < 6 AND owner_id <> '';
CREATE INDEX runs_released ON runs (run_id) WHERE state = 2 AND owner_id = '';
CREATE INDEX runs_due      ON runs (wake_time) WHERE state IN (1, 3) AND owner_id = '' AND wake_time > 0;

-- Until now a waiting run kept no job of its own: those that a stop released are due at once.
UPDATE runs SET wake_time = CAST(unixepoch('subsec') * 1000000 AS INTEGER) WHERE state IN (1, 3) AND owner_id = '' AND wake_time = 0;

-- Questions that runs ask.
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
    decision      TEXT NOT NULL DEFAULT '',
    closed_by     TEXT NOT NULL DEFAULT '',
    prompt        BLOB,
    schema        BLOB,
    approve       BLOB,
    default_value BLOB,
    answer        BLOB
) STRICT;
CREATE INDEX interrupts_by_time ON interrupts (namespace, create_time DESC, id DESC);
CREATE INDEX interrupts_open    ON interrupts (namespace, create_time DESC, id DESC) WHERE state = 1;
CREATE INDEX interrupts_by_root ON interrupts (root_run_id, create_time DESC, id DESC);
CREATE INDEX interrupts_by_run  ON interrupts (run_id);

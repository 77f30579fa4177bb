-- +goose Up
-- What has ended, by when: for retention.
CREATE INDEX runs_by_end ON runs (end_time, run_id) WHERE state >= 6;

-- Where runs are that were taken out of the database.
CREATE TABLE archives (
    namespace    TEXT NOT NULL,
    run_id       TEXT NOT NULL,
    place        TEXT NOT NULL,
    archive_time INTEGER NOT NULL,
    PRIMARY KEY (namespace, run_id)
) STRICT, WITHOUT ROWID;

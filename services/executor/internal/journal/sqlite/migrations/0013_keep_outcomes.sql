-- +goose Up
-- What calls of nodes with a cache gave.
CREATE TABLE kept_outcomes (
    namespace   TEXT NOT NULL,
    key         BLOB NOT NULL,
    outcome     BLOB NOT NULL,
    expire_time INTEGER NOT NULL,
    PRIMARY KEY (namespace, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX kept_outcomes_by_end ON kept_outcomes (expire_time);

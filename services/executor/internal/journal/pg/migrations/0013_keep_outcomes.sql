-- +goose Up
-- What calls of nodes with a cache gave. It may be lost with a crash of the database, and then the calls are made again.
CREATE UNLOGGED TABLE kept_outcomes (
    namespace   text COLLATE "C" NOT NULL,
    key         bytea NOT NULL,
    outcome     bytea NOT NULL,
    expire_time timestamptz NOT NULL,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX kept_outcomes_by_end ON kept_outcomes (expire_time);

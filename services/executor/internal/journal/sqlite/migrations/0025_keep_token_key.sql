-- +goose Up
-- What executors of this database sign task tokens with where no key is configured, and take in any case: one row, made by the first of them.
CREATE TABLE token_key (
    id  INTEGER PRIMARY KEY CHECK (id = 1),
    key BLOB NOT NULL
) STRICT;

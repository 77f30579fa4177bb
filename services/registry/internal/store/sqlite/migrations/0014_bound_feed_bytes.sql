-- +goose Up
-- The size of the bodies of the events that are kept of a namespace.
ALTER TABLE feeds ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE feeds SET bytes = (SELECT COALESCE(SUM(octet_length(e.body)), 0) FROM feed e WHERE e.namespace = feeds.namespace);

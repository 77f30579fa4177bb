-- +goose Up
-- The thread that an event is of, so that the events of a thread are found.
ALTER TABLE feed ADD COLUMN thread_id text COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX feed_by_thread ON feed (namespace, thread_id, seq) WHERE thread_id <> '';

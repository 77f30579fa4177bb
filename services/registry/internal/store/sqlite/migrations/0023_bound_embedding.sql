-- +goose Up
-- What became of the tries to make a vector of an entry: how many failed, -1 if no more are made, and why the last
-- one did. embedded names the model that was given up as well, so that another model tries again.
ALTER TABLE memories ADD COLUMN embed_attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE memories ADD COLUMN embed_fault TEXT NOT NULL DEFAULT '';
CREATE INDEX memories_without_vector ON memories (namespace, id) WHERE embed_attempts < 0;

-- Entries are handed out by namespace in turn, and of each the oldest first.
DROP INDEX memories_by_embedded;
CREATE INDEX memories_by_embedded ON memories (embedded, namespace, embed_after);

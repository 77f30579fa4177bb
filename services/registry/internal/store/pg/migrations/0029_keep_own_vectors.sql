-- +goose Up
-- Whether a client gave the entry its vector: such a vector is kept whatever model executors have, and the models
-- that clients name keep no entry of others from its vector. Vectors of before count as those of executors.
ALTER TABLE memories ADD COLUMN own_vector smallint NOT NULL DEFAULT 0;
DROP INDEX memories_by_embedded;
CREATE INDEX memories_by_embedded ON memories (embedded, namespace, embed_after) WHERE own_vector = 0;

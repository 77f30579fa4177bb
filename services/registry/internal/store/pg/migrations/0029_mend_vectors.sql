-- +goose Up
-- Whether a client gave the entry its vector: such a vector is kept whatever model executors have, and the models
-- that clients name keep no entry of others from its vector. Vectors of before count as those of executors.
ALTER TABLE memories ADD COLUMN own_vector smallint NOT NULL DEFAULT 0;
DROP INDEX memories_by_embedded;
CREATE INDEX memories_by_embedded ON memories (embedded, namespace, embed_after) WHERE own_vector = 0;

-- Calls for vectors are booked with the kind 4. All rows of before have one of the first three, so none is read.
ALTER TABLE usage_entries DROP CONSTRAINT usage_entries_kind_check;
ALTER TABLE usage_entries ADD CONSTRAINT usage_entries_kind_check CHECK (kind BETWEEN 1 AND 4) NOT VALID;

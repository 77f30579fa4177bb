-- +goose Up
-- Whether a client gave the entry its vector: such a vector is kept whatever model executors have, and the models
-- that clients name keep no entry of others from its vector. Vectors of before count as those of executors.
ALTER TABLE memories ADD COLUMN own_vector INTEGER NOT NULL DEFAULT 0;
DROP INDEX memories_by_embedded;
CREATE INDEX memories_by_embedded ON memories (embedded, namespace, embed_after) WHERE own_vector = 0;

-- Calls for vectors are booked with the kind 4.
ALTER TABLE usage_entries RENAME TO usage_entries_before;
DROP INDEX usage_by_time;
DROP INDEX usage_by_epic;
DROP INDEX usage_by_task;
DROP INDEX usage_by_run;
CREATE TABLE usage_entries (
  namespace           TEXT NOT NULL,
  run_id              TEXT NOT NULL,
  source              INTEGER NOT NULL CHECK (source BETWEEN 1 AND 4),
  node_id             TEXT NOT NULL,
  visit               INTEGER NOT NULL,
  item                INTEGER NOT NULL,
  attempt             INTEGER NOT NULL,
  call                INTEGER NOT NULL,
  id                  TEXT NOT NULL,
  kind                INTEGER NOT NULL CHECK (kind BETWEEN 1 AND 4),
  task_id             TEXT NOT NULL,
  epic_id             TEXT NOT NULL,
  provider            TEXT NOT NULL,
  model               TEXT NOT NULL,
  input_tokens        INTEGER NOT NULL,
  cached_input_tokens INTEGER NOT NULL,
  output_tokens       INTEGER NOT NULL,
  reasoning_tokens    INTEGER NOT NULL,
  cost_nano_usd       INTEGER, -- null where no price is known
  price_id            TEXT NOT NULL,
  time                INTEGER NOT NULL,
  failed              INTEGER NOT NULL,
  recorded_by         TEXT NOT NULL,
  principal           TEXT NOT NULL,
  actor               TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (namespace, run_id, source, node_id, visit, item, attempt, call)
) STRICT;
INSERT INTO usage_entries SELECT * FROM usage_entries_before;
DROP TABLE usage_entries_before;
CREATE INDEX usage_by_time ON usage_entries (namespace, time, id);
CREATE INDEX usage_by_epic ON usage_entries (namespace, epic_id, time, id) WHERE epic_id <> '';
CREATE INDEX usage_by_task ON usage_entries (namespace, task_id, time, id) WHERE task_id <> '';
CREATE INDEX usage_by_run ON usage_entries (namespace, run_id, time, id);

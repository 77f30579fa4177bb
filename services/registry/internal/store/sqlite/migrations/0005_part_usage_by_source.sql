-- +goose Up
-- Executor and clients have keys of their own. source: 1 executor, 2 client.
CREATE TABLE usage_by_source (
  namespace           TEXT NOT NULL,
  run_id              TEXT NOT NULL,
  source              INTEGER NOT NULL CHECK (source BETWEEN 1 AND 2),
  node_id             TEXT NOT NULL,
  visit               INTEGER NOT NULL,
  item                INTEGER NOT NULL,
  attempt             INTEGER NOT NULL,
  call                INTEGER NOT NULL,
  id                  TEXT NOT NULL,
  kind                INTEGER NOT NULL CHECK (kind BETWEEN 1 AND 3),
  task_id             TEXT NOT NULL,
  epic_id             TEXT NOT NULL,
  provider            TEXT NOT NULL,
  model               TEXT NOT NULL,
  input_tokens        INTEGER NOT NULL,
  cached_input_tokens INTEGER NOT NULL,
  output_tokens       INTEGER NOT NULL,
  reasoning_tokens    INTEGER NOT NULL,
  cost_nano_usd       INTEGER,
  price_id            TEXT NOT NULL,
  time                INTEGER NOT NULL,
  failed              INTEGER NOT NULL,
  recorded_by         TEXT NOT NULL,
  principal           TEXT NOT NULL,
  PRIMARY KEY (namespace, run_id, source, node_id, visit, item, attempt, call)
) STRICT;
INSERT INTO usage_by_source SELECT namespace, run_id, 1,
  node_id, visit, item, attempt, call, id, kind, task_id, epic_id, provider, model, input_tokens, cached_input_tokens,
  output_tokens, reasoning_tokens, cost_nano_usd, price_id, time, failed, '', '' FROM usage_entries;
DROP TABLE usage_entries;
ALTER TABLE usage_by_source RENAME TO usage_entries;
CREATE INDEX usage_by_time ON usage_entries (namespace, time, id);
CREATE INDEX usage_by_epic ON usage_entries (namespace, epic_id, time, id) WHERE epic_id <> '';
CREATE INDEX usage_by_task ON usage_entries (namespace, task_id, time, id) WHERE task_id <> '';

-- +goose Up
-- Executor and clients have keys of their own. source: 1 executor, 2 client.
ALTER TABLE usage_entries
  ADD COLUMN source      smallint NOT NULL DEFAULT 1 CHECK (source BETWEEN 1 AND 2),
  ADD COLUMN recorded_by text NOT NULL DEFAULT '',
  ADD COLUMN principal   text NOT NULL DEFAULT '',
  DROP CONSTRAINT usage_entries_pkey,
  ADD PRIMARY KEY (namespace, run_id, source, node_id, visit, item, attempt, call);

-- +goose Up
-- What a run may use of the estimate of its task, and what the task had used when it was claimed.
ALTER TABLE claims ADD COLUMN estimated_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE claims ADD COLUMN tokens_before INTEGER NOT NULL DEFAULT 0;
CREATE INDEX claims_estimated ON claims (namespace, task_id) WHERE state IN (1, 2) AND estimated_tokens > 0;
CREATE INDEX reservations_by_task ON reservations (namespace, task_id) WHERE task_id <> '';

-- The incarnation of the owner that a reservation is of; 0 if it is not known. An earlier owner does
-- not release it.
ALTER TABLE reservations ADD COLUMN incarnation INTEGER NOT NULL DEFAULT 0;

-- Samples of what calls of a model put out: at most 100, of which each new one replaces one by chance.
-- They are written under the lock of the totals of the namespace.
CREATE TABLE output_samples (
  namespace     TEXT NOT NULL,
  model         TEXT NOT NULL,
  place         INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL,
  PRIMARY KEY (namespace, model, place)
) STRICT, WITHOUT ROWID;

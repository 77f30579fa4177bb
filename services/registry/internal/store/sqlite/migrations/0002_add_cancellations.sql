-- +goose Up
-- The outbox to the executors: runs to cancel. It outlives the task, so it refers to nothing.
CREATE TABLE cancellations (
  namespace   TEXT NOT NULL,
  run_id      TEXT NOT NULL,
  task_id     TEXT NOT NULL,
  reason      TEXT NOT NULL,
  create_time INTEGER NOT NULL,
  lease_until INTEGER NOT NULL,
  PRIMARY KEY (namespace, run_id, task_id)
) STRICT;
CREATE INDEX cancellations_by_lease ON cancellations (lease_until);

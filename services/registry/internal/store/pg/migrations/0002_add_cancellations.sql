-- +goose Up
-- The outbox to the executors: runs to cancel. It outlives the task, so it refers to nothing.
CREATE TABLE cancellations (
  namespace   text COLLATE "C" NOT NULL,
  run_id      text COLLATE "C" NOT NULL,
  task_id     text COLLATE "C" NOT NULL,
  reason      text NOT NULL,
  create_time timestamptz NOT NULL,
  lease_until timestamptz NOT NULL,
  PRIMARY KEY (namespace, run_id, task_id)
);
CREATE INDEX cancellations_by_lease ON cancellations (lease_until);

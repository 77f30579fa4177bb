-- +goose Up
-- The outbox to the executors: what is wanted of runs. It was for cancels alone before.
ALTER TABLE cancellations RENAME TO orders;
-- 1 cancel, 2 pause, 3 resume, 4 start. The order to start a task has no run.
ALTER TABLE orders ADD COLUMN kind INTEGER NOT NULL DEFAULT 1 CHECK (kind BETWEEN 1 AND 4);
ALTER TABLE orders ADD COLUMN id TEXT NOT NULL DEFAULT '';
-- Of an order to start the epic, so that they can be counted.
ALTER TABLE orders ADD COLUMN epic_id TEXT NOT NULL DEFAULT '';
-- How often it was leased.
ALTER TABLE orders ADD COLUMN tries INTEGER NOT NULL DEFAULT 0;
DROP INDEX cancellations_by_namespace;
-- Of a database by namespace, in the order in which they are due: leases take from each namespace in turn.
CREATE INDEX orders_by_namespace ON orders (database_id, namespace, lease_until);
CREATE INDEX orders_by_epic ON orders (namespace, epic_id) WHERE kind = 4;

-- How many tasks of an epic are worked on at once while it runs by itself; 0 if it does not.
ALTER TABLE epics ADD COLUMN parallel INTEGER NOT NULL DEFAULT 0 CHECK (parallel >= 0);
ALTER TABLE epics ADD COLUMN pause_reason TEXT NOT NULL DEFAULT '';

-- What is left to do of an epic, the most urgent first.
CREATE INDEX tasks_open ON tasks (namespace, epic_id, state, priority, id) WHERE state IN (1, 2, 3);

-- The inputs of the task's workflow, one JSON object.
ALTER TABLE task_bodies ADD COLUMN input BLOB;

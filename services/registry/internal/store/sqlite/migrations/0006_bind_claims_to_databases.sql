-- +goose Up
-- Which database of executors a run is recorded in: only they can tell that there is no such run.
ALTER TABLE claims ADD COLUMN database_id TEXT NOT NULL DEFAULT '';
ALTER TABLE cancellations ADD COLUMN database_id TEXT NOT NULL DEFAULT '';
DROP INDEX cancellations_by_lease;
CREATE INDEX cancellations_by_lease ON cancellations (database_id, lease_until);

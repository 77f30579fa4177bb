-- +goose Up
-- Runs that wait for room in their namespace, in the order in which they get it.
CREATE INDEX runs_pending ON runs (namespace, priority, create_time, run_id) WHERE state = 1 AND owner_id = '' AND wake_time IS NULL;

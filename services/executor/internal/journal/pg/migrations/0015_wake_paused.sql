-- +goose NO TRANSACTION
-- +goose Up
-- Paused runs that go on by themselves are due at a time like others that wait for one. Each statement may have been carried out before.
DROP INDEX CONCURRENTLY IF EXISTS runs_wakes;
CREATE INDEX CONCURRENTLY runs_wakes ON runs (wake_time) WHERE state IN (1, 3, 4) AND owner_id = '' AND wake_time IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS runs_due;

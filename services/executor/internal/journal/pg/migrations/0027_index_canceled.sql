-- +goose NO TRANSACTION
-- +goose Up
-- Open runs that were canceled, by namespace: those that nobody owns are taken over however full executors are. Each statement may have been carried out
-- before.
DROP INDEX CONCURRENTLY IF EXISTS runs_canceled;
CREATE INDEX CONCURRENTLY runs_canceled ON runs (namespace, run_id) WHERE state < 6 AND cancel_time IS NOT NULL;

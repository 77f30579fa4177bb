-- +goose Up
-- Open runs that were canceled, by namespace: those that nobody owns are taken over however full executors are.
CREATE INDEX runs_canceled ON runs (namespace, run_id) WHERE state < 6 AND cancel_time > 0;

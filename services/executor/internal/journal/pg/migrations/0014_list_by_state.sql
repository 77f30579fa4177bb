-- +goose NO TRANSACTION
-- +goose Up
-- Each statement by itself, so that nobody has to wait for a long one, and each of them may be there already: a migration that was ended begins again.

-- One index lists runs by state, and, state by state, by time, and finds those that ended. The newest come last, where there is room without moving others.
DROP INDEX CONCURRENTLY IF EXISTS runs_listed;
CREATE INDEX CONCURRENTLY runs_listed ON runs (namespace, state, create_time, run_id);
DROP INDEX CONCURRENTLY IF EXISTS runs_by_time;
DROP INDEX CONCURRENTLY IF EXISTS runs_by_state;
DROP INDEX CONCURRENTLY IF EXISTS runs_by_end;

DROP INDEX CONCURRENTLY IF EXISTS interrupts_listed;
CREATE INDEX CONCURRENTLY interrupts_listed ON interrupts (namespace, state, create_time, id);
DROP INDEX CONCURRENTLY IF EXISTS interrupts_by_time;
DROP INDEX CONCURRENTLY IF EXISTS interrupts_open;

-- Room for the result beside what a run begins with, so that no index hears of it.
ALTER TABLE run_details SET (fillfactor = 50);

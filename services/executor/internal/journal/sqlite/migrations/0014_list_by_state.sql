-- +goose Up
-- One index lists runs by state, and, state by state, by time, and finds those that ended.
CREATE INDEX runs_listed ON runs (namespace, state, create_time, run_id);
DROP INDEX runs_by_time;
DROP INDEX runs_by_state;
DROP INDEX runs_by_end;

CREATE INDEX interrupts_listed ON interrupts (namespace, state, create_time, id);
DROP INDEX interrupts_by_time;
DROP INDEX interrupts_open;

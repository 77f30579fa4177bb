-- +goose Up
-- A time of a schedule has one start that did not fail, whatever its keepers decide.
CREATE UNIQUE INDEX schedule_starts_once ON schedule_starts (uid, time) WHERE origin < 2 AND result <> 'FAILED';

-- +goose Up
-- Paused runs that go on by themselves are due at a time like others that wait for one.
CREATE INDEX runs_wakes ON runs (wake_time) WHERE state IN (1, 3, 4) AND owner_id = '' AND wake_time > 0;
DROP INDEX runs_due;

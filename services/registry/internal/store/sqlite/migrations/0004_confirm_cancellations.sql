-- +goose Up
-- Whether the run is known to be recorded, so that only who knows it may say that it will end.
ALTER TABLE cancellations ADD COLUMN confirmed INTEGER NOT NULL DEFAULT 0;

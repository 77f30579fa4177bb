-- +goose Up
-- Whether the run is known to be recorded, so that only who knows it may say that it will end.
ALTER TABLE cancellations ADD COLUMN confirmed boolean NOT NULL DEFAULT false;

-- +goose Up
-- Who wrote last, from the API key that was shown.
ALTER TABLE epics ADD COLUMN principal text NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN principal text NOT NULL DEFAULT '';
ALTER TABLE prices ADD COLUMN principal text NOT NULL DEFAULT '';

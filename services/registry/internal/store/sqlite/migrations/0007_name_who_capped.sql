-- +goose Up
-- Who set the caps of an account last, from the API key that was shown.
ALTER TABLE accounts ADD COLUMN principal TEXT NOT NULL DEFAULT '';

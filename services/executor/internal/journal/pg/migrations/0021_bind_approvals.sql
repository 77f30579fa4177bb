-- +goose Up
-- What a question of approval covers besides what it asks.
ALTER TABLE interrupts ADD COLUMN binds text NOT NULL DEFAULT '';

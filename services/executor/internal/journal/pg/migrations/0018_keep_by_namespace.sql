-- +goose Up
-- How long a namespace keeps its runs after their end, where it says so itself.
ALTER TABLE limits ADD COLUMN retention_us bigint NOT NULL DEFAULT 0;

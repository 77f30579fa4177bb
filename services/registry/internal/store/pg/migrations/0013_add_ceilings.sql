-- +goose Up
-- Hard caps that were set for an account itself, and who set them: the budget of an epic stays below them.
ALTER TABLE accounts ADD COLUMN ceiling_tokens bigint;
ALTER TABLE accounts ADD COLUMN ceiling_nano_usd bigint;
ALTER TABLE accounts ADD COLUMN ceiling_by text NOT NULL DEFAULT '';

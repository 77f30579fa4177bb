-- +goose Up
-- Hard caps that were set for an account itself, and who set them: the budget of an epic stays below them.
ALTER TABLE accounts ADD COLUMN ceiling_tokens INTEGER;
ALTER TABLE accounts ADD COLUMN ceiling_nano_usd INTEGER;
ALTER TABLE accounts ADD COLUMN ceiling_by TEXT NOT NULL DEFAULT '';

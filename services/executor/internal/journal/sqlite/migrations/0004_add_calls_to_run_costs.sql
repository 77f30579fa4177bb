-- +goose Up

-- What acknowledged outbox items say of the calls of the run and of all below it, also of children
-- that it gave up, which the usage in its row leaves out. Items that were acknowledged before count
-- nothing here.
ALTER TABLE run_costs ADD COLUMN calls         INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run_costs ADD COLUMN input_tokens  INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run_costs ADD COLUMN output_tokens INTEGER NOT NULL DEFAULT 0;

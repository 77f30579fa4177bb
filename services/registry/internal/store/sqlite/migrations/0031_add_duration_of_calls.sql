-- +goose Up

-- How long the attempt took that made the call, on its first call alone; 0 if that is not known, as of all
-- entries from before. Forecasts are made of it.
ALTER TABLE usage_entries ADD COLUMN duration_ms INTEGER NOT NULL DEFAULT 0;

-- +goose Up
-- Only the day is kept, so that most updates of an account leave its index alone.
ALTER TABLE accounts RENAME COLUMN update_time TO update_day;

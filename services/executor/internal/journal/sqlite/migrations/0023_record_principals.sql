-- +goose Up
-- Who wrote, from the API key that was shown.
ALTER TABLE interrupts ADD COLUMN principal TEXT NOT NULL DEFAULT '';
ALTER TABLE limits ADD COLUMN principal TEXT NOT NULL DEFAULT '';
ALTER TABLE schedules ADD COLUMN principal TEXT NOT NULL DEFAULT '';
ALTER TABLE schedule_starts ADD COLUMN principal TEXT NOT NULL DEFAULT '';

-- The body of a cancel is a letter, as that of all other mail.
UPDATE mail SET body = CAST(json_object('reason', CAST(coalesce(body, '') AS TEXT)) AS BLOB) WHERE kind = 'CANCEL';

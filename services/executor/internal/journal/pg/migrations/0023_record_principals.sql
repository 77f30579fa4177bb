-- +goose Up
-- Who wrote, from the API key that was shown.
ALTER TABLE interrupts ADD COLUMN principal text NOT NULL DEFAULT '';
ALTER TABLE limits ADD COLUMN principal text NOT NULL DEFAULT '';
ALTER TABLE schedules ADD COLUMN principal text NOT NULL DEFAULT '';
ALTER TABLE schedule_starts ADD COLUMN principal text NOT NULL DEFAULT '';

-- The body of a cancel is a letter, as that of all other mail.
UPDATE mail SET body = convert_to(json_build_object('reason', convert_from(coalesce(body, ''), 'UTF8'))::text, 'UTF8') WHERE kind = 'CANCEL';

-- +goose Up
-- What a run that is suspected of bringing its owners down is at work with, and what it was at work with when one went down.
ALTER TABLE runs ADD COLUMN doing TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN died_doing TEXT NOT NULL DEFAULT '';

-- +goose Up
-- Under which name the process of an executor works jobs: those that it dies with are made available again at once.
ALTER TABLE executors ADD COLUMN worker text NOT NULL DEFAULT '';

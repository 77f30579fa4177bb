-- +goose Up
-- The text of a workflow of the task's own; empty if it has none.
ALTER TABLE task_bodies ADD COLUMN definition text NOT NULL DEFAULT '';

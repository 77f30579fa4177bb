-- +goose Up
-- The version of the catalog that the run of a task runs, as SLUG@VERSION; empty for another graph.
ALTER TABLE tasks ADD COLUMN run_workflow TEXT NOT NULL DEFAULT '';
-- An epic is found with what its tasks ran, and with what those name that have not run a workflow.
CREATE INDEX tasks_by_workflow ON tasks (namespace, epic_id, (CASE WHEN run_workflow <> '' THEN run_workflow ELSE workflow_slug END))
  WHERE (CASE WHEN run_workflow <> '' THEN run_workflow ELSE workflow_slug END) <> '';
DROP INDEX tasks_by_slug;

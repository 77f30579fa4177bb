-- +goose Up

-- Runs of a workflow or of an epic that are in a rare state, among many that are not.
CREATE INDEX runs_by_workflow_state ON runs (namespace, workflow, state, create_time DESC, run_id DESC) WHERE workflow <> '';
CREATE INDEX runs_by_epic_state     ON runs (namespace, epic_id, state, create_time DESC, run_id DESC) WHERE epic_id <> '';

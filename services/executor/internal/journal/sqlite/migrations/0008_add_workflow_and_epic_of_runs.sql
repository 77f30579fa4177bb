-- +goose Up

-- By what else runs are listed: the workflow of the catalog that the graph was taken from, its version
-- as SLUG@VERSION, and the epic of the task, or else the one that pays when the run is recorded. The
-- details of a run have its version, too. Runs from before are found by their workflow, and not by their
-- epic, which no table here has. Runs that executors of the version before record while a rollout is under
-- way are found by neither.
ALTER TABLE runs ADD COLUMN workflow         TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN workflow_version TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN epic_id          TEXT NOT NULL DEFAULT '';
UPDATE runs SET workflow_version = coalesce((SELECT json_extract(CAST(d.metadata AS TEXT), '$.workflow') FROM run_details d
    WHERE d.run_id = runs.run_id AND d.metadata IS NOT NULL), '');
UPDATE runs SET workflow = substr(workflow_version, 1, instr(workflow_version, '@') - 1) WHERE workflow_version <> '';
CREATE INDEX runs_by_workflow         ON runs (namespace, workflow, create_time DESC, run_id DESC) WHERE workflow <> '';
CREATE INDEX runs_by_workflow_version ON runs (namespace, workflow_version, create_time DESC, run_id DESC) WHERE workflow_version <> '';
CREATE INDEX runs_by_epic             ON runs (namespace, epic_id, create_time DESC, run_id DESC) WHERE epic_id <> '';

-- +goose Up

-- By what else runs are listed: the workflow of the catalog that the graph was taken from, its version
-- as SLUG@VERSION, and the epic of the task, or else the one that pays when the run is recorded. The
-- details of a run have its version, too. Runs from before are found by their workflow, and not by their
-- epic, which no table here has. Runs that executors of the version before record while a rollout is under
-- way are found by neither.
ALTER TABLE runs ADD COLUMN workflow         text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN workflow_version text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN epic_id          text COLLATE "C" NOT NULL DEFAULT '';
-- A text of JSON may hold an escaped NUL, which PostgreSQL does not read.
UPDATE runs r SET workflow_version = m.version, workflow = split_part(m.version, '@', 1)
    FROM (SELECT d.run_id, replace(convert_from(d.metadata, 'UTF8'), '\u0000', '\u0001')::json ->> 'workflow' AS version FROM run_details d WHERE d.metadata IS NOT NULL) m
    WHERE m.run_id = r.run_id AND m.version <> '';
CREATE INDEX runs_by_workflow         ON runs (namespace, workflow, create_time DESC, run_id DESC) WHERE workflow <> '';
CREATE INDEX runs_by_workflow_version ON runs (namespace, workflow_version, create_time DESC, run_id DESC) WHERE workflow_version <> '';
CREATE INDEX runs_by_epic             ON runs (namespace, epic_id, create_time DESC, run_id DESC) WHERE epic_id <> '';

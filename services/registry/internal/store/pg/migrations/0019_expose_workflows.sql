-- +goose Up
-- The version that clients of other protocols run. Few workflows of a namespace have one, and lists of these
-- must not look at the others.
ALTER TABLE workflows ADD COLUMN exposed text NOT NULL DEFAULT '';
CREATE INDEX workflows_exposed ON workflows (namespace, create_time, id) WHERE exposed <> '';

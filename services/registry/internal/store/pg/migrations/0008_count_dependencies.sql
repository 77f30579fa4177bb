-- +goose NO TRANSACTION
-- +goose Up
-- How many dependencies the tasks of an epic have together, so that they can be bounded without being read.
-- Each statement may have been carried out before.
ALTER TABLE epics ADD COLUMN IF NOT EXISTS dependencies integer NOT NULL DEFAULT 0;
UPDATE epics SET dependencies = d.n
  FROM (SELECT namespace, epic_id, sum(cardinality(depends_on)) AS n FROM tasks GROUP BY namespace, epic_id) AS d
  WHERE epics.namespace = d.namespace AND epics.id = d.epic_id AND epics.dependencies <> d.n;

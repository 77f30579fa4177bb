-- +goose Up
-- What may be large of a task, apart from what others read and change of it: a row is rewritten as a whole
-- whenever one of its columns comes to take another number of bytes.
CREATE TABLE task_bodies (
  namespace      TEXT NOT NULL,
  id             TEXT NOT NULL,
  description    TEXT NOT NULL,
  requirements   BLOB,
  result_summary TEXT NOT NULL,
  error_message  TEXT NOT NULL,
  notes          TEXT NOT NULL,
  PRIMARY KEY (namespace, id),
  FOREIGN KEY (namespace, id) REFERENCES tasks (namespace, id) ON DELETE CASCADE
) STRICT;
INSERT INTO task_bodies SELECT namespace, id, description, requirements, result_summary, error_message, notes FROM tasks;
-- Rows are emptied once, so that each dropped column rewrites small ones.
UPDATE tasks SET description = '', requirements = NULL, result_summary = '', error_message = '', notes = '';
ALTER TABLE tasks DROP COLUMN description;
ALTER TABLE tasks DROP COLUMN requirements;
ALTER TABLE tasks DROP COLUMN result_summary;
ALTER TABLE tasks DROP COLUMN error_message;
ALTER TABLE tasks DROP COLUMN notes;

-- How many dependencies the tasks of an epic have together, so that they can be bounded without being read.
ALTER TABLE epics ADD COLUMN dependencies INTEGER NOT NULL DEFAULT 0;
UPDATE epics SET dependencies = d.n
  FROM (SELECT namespace, epic_id, sum(json_array_length(depends_on)) AS n FROM tasks GROUP BY namespace, epic_id) AS d
  WHERE epics.namespace = d.namespace AND epics.id = d.epic_id;

-- Whoever looks for what a task depends on finds it in the index; the planner took that of the whole
-- namespace instead, of which it need not leave the index either.
DROP INDEX dependencies_by_task;
CREATE INDEX dependencies_by_task ON dependencies (namespace, task_id, depends_on);

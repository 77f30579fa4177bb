-- +goose Up
-- How far the changes of sources outside the registry were recorded, so that none is told twice: of a run, by
-- the sequence of its events. The row without a source is locked by whoever records changes of a namespace.
CREATE TABLE change_places (
  namespace TEXT NOT NULL,
  source    TEXT NOT NULL,
  seq       INTEGER NOT NULL,
  time      INTEGER NOT NULL,
  PRIMARY KEY (namespace, source)
) STRICT, WITHOUT ROWID;
CREATE INDEX change_places_by_time ON change_places (time);

-- Pauses were told under the id of the run and the sequence of the event. Ends are still counted there, too.
INSERT INTO change_places (namespace, source, seq, time)
SELECT namespace, substr(run_id, 1, instr(run_id, '/') - 1), max(CAST(substr(run_id, instr(run_id, '/') + 1) AS INTEGER)), max(time)
FROM workflow_runs WHERE instr(run_id, '/') > 0 GROUP BY namespace, substr(run_id, 1, instr(run_id, '/') - 1);

-- The run within which a change was made, so that the events of a run are found.
ALTER TABLE feed ADD COLUMN run_id TEXT NOT NULL DEFAULT '';
UPDATE feed SET run_id = COALESCE(json_extract(body, '$.Run'), '') WHERE instr(body, '"Run":') > 0;
CREATE INDEX feed_by_run ON feed (namespace, run_id, seq) WHERE run_id <> '';

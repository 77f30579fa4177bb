-- +goose Up
-- How far the changes of sources outside the registry were recorded, so that none is told twice: of a run, by
-- the sequence of its events. The row without a source is locked by whoever records changes of a namespace.
CREATE TABLE change_places (
  namespace text COLLATE "C" NOT NULL,
  source    text COLLATE "C" NOT NULL,
  seq       bigint NOT NULL,
  time      timestamptz NOT NULL,
  PRIMARY KEY (namespace, source)
) WITH (fillfactor = 75);
CREATE INDEX change_places_by_time ON change_places (time);

-- Pauses were told under the id of the run and the sequence of the event. Ends are still counted there, too.
INSERT INTO change_places (namespace, source, seq, time)
SELECT namespace, split_part(run_id, '/', 1), max(CAST(split_part(run_id, '/', 2) AS bigint)), max(time)
FROM workflow_runs WHERE run_id LIKE '%/%' GROUP BY namespace, split_part(run_id, '/', 1);

-- The run within which a change was made, so that the events of a run are found. A text of JSON may hold an
-- escaped NUL, which PostgreSQL does not read.
ALTER TABLE feed ADD COLUMN run_id text COLLATE "C" NOT NULL DEFAULT '';
UPDATE feed SET run_id = COALESCE(CAST(replace(body, '\u0000', '\u0001') AS jsonb) ->> 'Run', '') WHERE body LIKE '%"Run":%';
CREATE INDEX feed_by_run ON feed (namespace, run_id, seq) WHERE run_id <> '';

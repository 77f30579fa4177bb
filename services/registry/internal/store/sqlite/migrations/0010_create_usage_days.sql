-- +goose Up
-- Which actor made a call, and what calls of one day add up to, so that reports need not read entries.
ALTER TABLE usage_entries ADD COLUMN actor TEXT NOT NULL DEFAULT '';

-- Without it the entries of a run are looked for among those of all runs, by time.
CREATE INDEX usage_by_run ON usage_entries (namespace, run_id, time, id);

-- Sums of epics, and, with an empty epic, those of the whole namespace. They are written under the lock of
-- the totals of the namespace. kind is that of usage_entries, day counts from 1970.
CREATE TABLE usage_days (
  namespace           TEXT NOT NULL,
  whole               INTEGER NOT NULL,
  epic_id             TEXT NOT NULL,
  day                 INTEGER NOT NULL,
  model               TEXT NOT NULL,
  actor               TEXT NOT NULL,
  kind                INTEGER NOT NULL,
  calls               INTEGER NOT NULL,
  failed_calls        INTEGER NOT NULL,
  unpriced_calls      INTEGER NOT NULL,
  input_tokens        INTEGER NOT NULL,
  cached_input_tokens INTEGER NOT NULL,
  output_tokens       INTEGER NOT NULL,
  reasoning_tokens    INTEGER NOT NULL,
  nano_usd            INTEGER NOT NULL,
  PRIMARY KEY (namespace, whole, epic_id, day, model, actor, kind)
) STRICT, WITHOUT ROWID;

INSERT INTO usage_days
SELECT namespace, w.whole, CASE WHEN w.whole THEN '' ELSE epic_id END, day, model, '', kind, sum(sign),
  sum(CASE WHEN failed THEN sign ELSE 0 END),
  sum(CASE WHEN cost_nano_usd IS NULL AND (kind <> 2 OR input_tokens + output_tokens <> 0) THEN sign ELSE 0 END),
  sum(input_tokens), sum(CASE WHEN abs(cached_input_tokens) > abs(input_tokens) THEN input_tokens ELSE cached_input_tokens END),
  sum(output_tokens), sum(CASE WHEN abs(reasoning_tokens) > abs(output_tokens) THEN output_tokens ELSE reasoning_tokens END),
  sum(COALESCE(cost_nano_usd, 0))
FROM (SELECT *, CASE WHEN source = 4 THEN -1 ELSE 1 END AS sign, ((time - ((time % 86400000000) + 86400000000) % 86400000000) / 86400000000) AS day
  FROM usage_entries) e
CROSS JOIN (SELECT 1 AS whole UNION ALL SELECT 0) w
GROUP BY namespace, w.whole, CASE WHEN w.whole THEN '' ELSE epic_id END, day, model, kind;

-- +goose Up
-- Sums of calls by day and node, those of each epic and, with an empty epic, those of the whole namespace, so
-- that reports by node need not read entries. They are written under the lock of the totals of the namespace.
CREATE TABLE usage_nodes (
  namespace           text COLLATE "C" NOT NULL,
  whole               boolean NOT NULL,
  epic_id             text COLLATE "C" NOT NULL,
  day                 integer NOT NULL,
  node_id             text COLLATE "C" NOT NULL,
  kind                smallint NOT NULL,
  calls               bigint NOT NULL,
  failed_calls        bigint NOT NULL,
  unpriced_calls      bigint NOT NULL,
  input_tokens        bigint NOT NULL,
  cached_input_tokens bigint NOT NULL,
  output_tokens       bigint NOT NULL,
  reasoning_tokens    bigint NOT NULL,
  nano_usd            bigint NOT NULL,
  PRIMARY KEY (namespace, whole, epic_id, day, node_id, kind)
);

INSERT INTO usage_nodes
SELECT namespace, w.whole, CASE WHEN w.whole THEN '' ELSE epic_id END, day, node_id, kind, sum(sign),
  sum(CASE WHEN failed THEN sign ELSE 0 END),
  sum(CASE WHEN cost_nano_usd IS NULL AND (kind <> 2 OR input_tokens + output_tokens <> 0) THEN sign ELSE 0 END),
  sum(input_tokens), sum(CASE WHEN abs(cached_input_tokens) > abs(input_tokens) THEN input_tokens ELSE cached_input_tokens END),
  sum(output_tokens), sum(CASE WHEN abs(reasoning_tokens) > abs(output_tokens) THEN output_tokens ELSE reasoning_tokens END),
  sum(COALESCE(cost_nano_usd, 0))
FROM (SELECT *, CASE WHEN source = 4 THEN -1 ELSE 1 END AS sign, CAST(floor(extract(epoch FROM time) / 86400) AS integer) AS day
  FROM usage_entries) e
CROSS JOIN (SELECT true AS whole UNION ALL SELECT false) w
GROUP BY namespace, w.whole, CASE WHEN w.whole THEN '' ELSE epic_id END, day, node_id, kind;

-- How many rows usage_epics has of the namespace, so that a report by epic need not count them.
ALTER TABLE namespace_totals ADD COLUMN used_epics bigint NOT NULL DEFAULT 0;
UPDATE namespace_totals SET used_epics = (SELECT count(*) FROM usage_epics e WHERE e.namespace = namespace_totals.namespace);

-- Lists by state begin in the state that is asked for: few rows of many may be in it.
CREATE INDEX epics_by_state ON epics (namespace, state, create_time, id);
CREATE INDEX tasks_by_state ON tasks (namespace, state, create_time, id);

-- +goose Up
-- What forecasts and reports of one epic are answered from.

-- The newest runs of a version that completed or failed, in a ring: place is the number of the run among
-- these, modulo the number that is kept. What is not known is null.
CREATE TABLE workflow_samples (
  namespace   text COLLATE "C" NOT NULL,
  workflow_id text COLLATE "C" NOT NULL,
  version     bigint NOT NULL,
  place       integer NOT NULL,
  failed      boolean NOT NULL,
  unpriced    boolean NOT NULL,
  nano_usd    bigint,
  tokens      bigint,
  duration_ms bigint,
  PRIMARY KEY (namespace, workflow_id, version, place),
  FOREIGN KEY (namespace, workflow_id, version) REFERENCES workflow_versions (namespace, workflow_id, version) ON DELETE CASCADE
);

-- Sums of calls by run of each epic, so that reports of an epic by task, run, model and actor need not read
-- entries. Entries of no epic are not in it. They are written under the lock of the totals of the namespace.
CREATE TABLE usage_runs (
  namespace           text COLLATE "C" NOT NULL,
  epic_id             text COLLATE "C" NOT NULL,
  task_id             text COLLATE "C" NOT NULL,
  run_id              text COLLATE "C" NOT NULL,
  model               text COLLATE "C" NOT NULL,
  actor               text COLLATE "C" NOT NULL,
  kind                smallint NOT NULL,
  calls               bigint NOT NULL,
  failed_calls        bigint NOT NULL,
  unpriced_calls      bigint NOT NULL,
  input_tokens        bigint NOT NULL,
  cached_input_tokens bigint NOT NULL,
  output_tokens       bigint NOT NULL,
  reasoning_tokens    bigint NOT NULL,
  nano_usd            bigint NOT NULL,
  PRIMARY KEY (namespace, epic_id, task_id, run_id, model, actor, kind)
);

INSERT INTO usage_runs
SELECT namespace, epic_id, task_id, run_id, model, actor, kind, sum(sign),
  sum(CASE WHEN failed THEN sign ELSE 0 END),
  sum(CASE WHEN cost_nano_usd IS NULL AND (kind <> 2 OR input_tokens + output_tokens <> 0) THEN sign ELSE 0 END),
  sum(input_tokens), sum(CASE WHEN abs(cached_input_tokens) > abs(input_tokens) THEN input_tokens ELSE cached_input_tokens END),
  sum(output_tokens), sum(CASE WHEN abs(reasoning_tokens) > abs(output_tokens) THEN output_tokens ELSE reasoning_tokens END),
  sum(COALESCE(cost_nano_usd, 0))
FROM (SELECT *, CASE WHEN source = 4 THEN -1 ELSE 1 END AS sign FROM usage_entries WHERE epic_id <> '') e
GROUP BY namespace, epic_id, task_id, run_id, model, actor, kind;

-- Sums of calls by epic, those of no epic included, so that the dearest epics are found by an index. They are
-- written under the lock of the totals of the namespace.
CREATE TABLE usage_epics (
  namespace           text COLLATE "C" NOT NULL,
  epic_id             text COLLATE "C" NOT NULL,
  calls               bigint NOT NULL,
  failed_calls        bigint NOT NULL,
  unpriced_calls      bigint NOT NULL,
  input_tokens        bigint NOT NULL,
  cached_input_tokens bigint NOT NULL,
  output_tokens       bigint NOT NULL,
  reasoning_tokens    bigint NOT NULL,
  nano_usd            bigint NOT NULL,
  PRIMARY KEY (namespace, epic_id)
);
CREATE INDEX usage_epics_by_cost ON usage_epics (namespace, nano_usd DESC, epic_id);

INSERT INTO usage_epics
SELECT namespace, epic_id, sum(calls), sum(failed_calls), sum(unpriced_calls), sum(input_tokens), sum(cached_input_tokens),
  sum(output_tokens), sum(reasoning_tokens), sum(nano_usd)
FROM usage_days WHERE NOT whole GROUP BY namespace, epic_id;

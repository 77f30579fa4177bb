-- +goose Up
-- What may be spent. An account is there for each level that has, or had, a cap: it has spent what is booked
-- of its level, and reserved what calls under way may use at most.

-- level: 1 epic, 2 task, 3 run, 4 namespace. A cap that is null does not bound.
CREATE TABLE accounts (
  namespace         TEXT NOT NULL,
  level             INTEGER NOT NULL CHECK (level BETWEEN 1 AND 4),
  id                TEXT NOT NULL,
  hard_tokens       INTEGER,
  hard_nano_usd     INTEGER,
  soft_tokens       INTEGER,
  soft_nano_usd     INTEGER,
  spent_tokens      INTEGER NOT NULL,
  spent_nano_usd    INTEGER NOT NULL,
  reserved_tokens   INTEGER NOT NULL CHECK (reserved_tokens >= 0),
  reserved_nano_usd INTEGER NOT NULL CHECK (reserved_nano_usd >= 0),
  update_time       INTEGER NOT NULL,
  PRIMARY KEY (namespace, level, id)
) STRICT;
-- Those of runs are removed when nothing was booked of them for long.
CREATE INDEX accounts_of_runs ON accounts (update_time) WHERE level = 3;

-- Under the key of the usage entry that settles it. Estimated ones were forgotten and booked at their
-- estimate, and wait for the real entry, which sets that right.
CREATE TABLE reservations (
  namespace   TEXT NOT NULL,
  run_id      TEXT NOT NULL,
  node_id     TEXT NOT NULL,
  visit       INTEGER NOT NULL,
  item        INTEGER NOT NULL,
  attempt     INTEGER NOT NULL,
  call        INTEGER NOT NULL,
  tokens      INTEGER NOT NULL,
  nano_usd    INTEGER NOT NULL,
  unpriced    INTEGER NOT NULL,
  kind        INTEGER NOT NULL,
  task_id     TEXT NOT NULL,
  epic_id     TEXT NOT NULL,
  provider    TEXT NOT NULL,
  model       TEXT NOT NULL,
  accounts    TEXT NOT NULL, -- JSON
  estimated   INTEGER NOT NULL DEFAULT 0,
  lease_until INTEGER NOT NULL,
  PRIMARY KEY (namespace, run_id, node_id, visit, item, attempt, call)
) STRICT;
CREATE INDEX reservations_by_lease ON reservations (lease_until) WHERE NOT estimated;
CREATE INDEX reservations_estimated ON reservations (lease_until) WHERE estimated;

-- Epics that have a budget have an account.
INSERT INTO accounts (namespace, level, id, hard_tokens, hard_nano_usd, spent_tokens, spent_nano_usd, reserved_tokens,
  reserved_nano_usd, update_time)
SELECT namespace, 1, id, budget_tokens, budget_nano_usd, tokens, nano_usd, 0, 0, update_time FROM epics
WHERE budget_tokens IS NOT NULL OR budget_nano_usd IS NOT NULL;

-- source: 1 executor, 2 client, 3 estimate of a forgotten reservation, 4 reversal of an estimate.
ALTER TABLE usage_entries RENAME TO usage_entries_before;
DROP INDEX usage_by_time;
DROP INDEX usage_by_epic;
DROP INDEX usage_by_task;
CREATE TABLE usage_entries (
  namespace           TEXT NOT NULL,
  run_id              TEXT NOT NULL,
  source              INTEGER NOT NULL CHECK (source BETWEEN 1 AND 4),
  node_id             TEXT NOT NULL,
  visit               INTEGER NOT NULL,
  item                INTEGER NOT NULL,
  attempt             INTEGER NOT NULL,
  call                INTEGER NOT NULL,
  id                  TEXT NOT NULL,
  kind                INTEGER NOT NULL CHECK (kind BETWEEN 1 AND 3),
  task_id             TEXT NOT NULL,
  epic_id             TEXT NOT NULL,
  provider            TEXT NOT NULL,
  model               TEXT NOT NULL,
  input_tokens        INTEGER NOT NULL,
  cached_input_tokens INTEGER NOT NULL,
  output_tokens       INTEGER NOT NULL,
  reasoning_tokens    INTEGER NOT NULL,
  cost_nano_usd       INTEGER, -- null where no price is known
  price_id            TEXT NOT NULL,
  time                INTEGER NOT NULL,
  failed              INTEGER NOT NULL,
  recorded_by         TEXT NOT NULL,
  principal           TEXT NOT NULL,
  PRIMARY KEY (namespace, run_id, source, node_id, visit, item, attempt, call)
) STRICT;
INSERT INTO usage_entries SELECT * FROM usage_entries_before;
DROP TABLE usage_entries_before;
CREATE INDEX usage_by_time ON usage_entries (namespace, time, id);
CREATE INDEX usage_by_epic ON usage_entries (namespace, epic_id, time, id) WHERE epic_id <> '';
CREATE INDEX usage_by_task ON usage_entries (namespace, task_id, time, id) WHERE task_id <> '';

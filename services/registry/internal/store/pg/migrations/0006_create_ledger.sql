-- +goose Up
-- What may be spent. An account is there for each level that has, or had, a cap: it has spent what is booked
-- of its level, and reserved what calls under way may use at most.

-- level: 1 epic, 2 task, 3 run, 4 namespace. A cap that is null does not bound.
CREATE TABLE accounts (
  namespace         text COLLATE "C" NOT NULL,
  level             smallint NOT NULL CHECK (level BETWEEN 1 AND 4),
  id                text COLLATE "C" NOT NULL,
  hard_tokens       bigint,
  hard_nano_usd     bigint,
  soft_tokens       bigint,
  soft_nano_usd     bigint,
  spent_tokens      bigint NOT NULL,
  spent_nano_usd    bigint NOT NULL,
  reserved_tokens   bigint NOT NULL CHECK (reserved_tokens >= 0),
  reserved_nano_usd bigint NOT NULL CHECK (reserved_nano_usd >= 0),
  update_time       timestamptz NOT NULL,
  PRIMARY KEY (namespace, level, id)
);
-- Those of runs are removed when nothing was booked of them for long.
CREATE INDEX accounts_of_runs ON accounts (update_time) WHERE level = 3;

-- Under the key of the usage entry that settles it. Estimated ones were forgotten and booked at their
-- estimate, and wait for the real entry, which sets that right.
CREATE TABLE reservations (
  namespace   text COLLATE "C" NOT NULL,
  run_id      text COLLATE "C" NOT NULL,
  node_id     text COLLATE "C" NOT NULL,
  visit       integer NOT NULL,
  item        integer NOT NULL,
  attempt     integer NOT NULL,
  call        integer NOT NULL,
  tokens      bigint NOT NULL,
  nano_usd    bigint NOT NULL,
  unpriced    boolean NOT NULL,
  kind        smallint NOT NULL,
  task_id     text COLLATE "C" NOT NULL,
  epic_id     text COLLATE "C" NOT NULL,
  provider    text NOT NULL,
  model       text NOT NULL,
  accounts    text NOT NULL, -- JSON
  estimated   boolean NOT NULL DEFAULT false,
  lease_until timestamptz NOT NULL,
  PRIMARY KEY (namespace, run_id, node_id, visit, item, attempt, call)
);
CREATE INDEX reservations_by_lease ON reservations (lease_until) WHERE NOT estimated;
CREATE INDEX reservations_estimated ON reservations (lease_until) WHERE estimated;

-- Epics that have a budget have an account.
INSERT INTO accounts (namespace, level, id, hard_tokens, hard_nano_usd, spent_tokens, spent_nano_usd, reserved_tokens,
  reserved_nano_usd, update_time)
SELECT namespace, 1, id, budget_tokens, budget_nano_usd, tokens, nano_usd, 0, 0, update_time FROM epics
WHERE budget_tokens IS NOT NULL OR budget_nano_usd IS NOT NULL;

-- source: 1 executor, 2 client, 3 estimate of a forgotten reservation, 4 reversal of an estimate.
ALTER TABLE usage_entries DROP CONSTRAINT usage_entries_source_check;
ALTER TABLE usage_entries ADD CONSTRAINT usage_entries_source_check CHECK (source BETWEEN 1 AND 4);

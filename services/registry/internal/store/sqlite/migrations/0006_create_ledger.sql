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

-- +goose Up
-- Times are microseconds since 1970, and 0 where they are unset; lists and maps are JSON text.
-- Totals of money are nano-USD. principal is who wrote last, from the API key that was shown.

-- Epics and tasks ------------------------------------------------------------

CREATE TABLE epics (
  namespace          TEXT NOT NULL,
  id                 TEXT NOT NULL,
  title              TEXT NOT NULL,
  description        TEXT NOT NULL,
  search             TEXT NOT NULL, -- title and description in the case in which they are searched
  tags               TEXT NOT NULL,
  labels             TEXT NOT NULL,
  state              INTEGER NOT NULL CHECK (state BETWEEN 1 AND 6),
  priority           INTEGER NOT NULL CHECK (priority BETWEEN 1 AND 4),
  budget_tokens      INTEGER,
  budget_nano_usd    INTEGER,
  tokens             INTEGER NOT NULL DEFAULT 0,
  nano_usd           INTEGER NOT NULL DEFAULT 0,
  unpriced_calls     INTEGER NOT NULL DEFAULT 0,
  overhead_tokens    INTEGER NOT NULL DEFAULT 0,
  overhead_nano_usd  INTEGER NOT NULL DEFAULT 0,
  model_calls        INTEGER NOT NULL DEFAULT 0,
  tool_calls         INTEGER NOT NULL DEFAULT 0,
  total_tasks        INTEGER NOT NULL CHECK (total_tasks >= 0),
  completed_tasks    INTEGER NOT NULL CHECK (completed_tasks >= 0),
  failed_tasks       INTEGER NOT NULL CHECK (failed_tasks >= 0),
  -- Of all its tasks together, so that they are bounded without being read.
  dependencies       INTEGER NOT NULL DEFAULT 0,
  result_summary     TEXT NOT NULL,
  workflow_slug      TEXT NOT NULL,
  user_id            TEXT NOT NULL,
  created_by_node_id TEXT NOT NULL,
  create_time        INTEGER NOT NULL,
  update_time        INTEGER NOT NULL,
  end_time           INTEGER NOT NULL,
  revision           INTEGER NOT NULL,
  principal          TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (namespace, id)
) STRICT;
CREATE INDEX epics_by_time ON epics (namespace, create_time, id);

CREATE TABLE tasks (
  namespace          TEXT NOT NULL,
  id                 TEXT NOT NULL,
  epic_id            TEXT NOT NULL,
  title              TEXT NOT NULL,
  tags               TEXT NOT NULL,
  labels             TEXT NOT NULL,
  state              INTEGER NOT NULL CHECK (state BETWEEN 1 AND 6),
  priority           INTEGER NOT NULL CHECK (priority BETWEEN 1 AND 4),
  depends_on         TEXT NOT NULL,
  workflow_slug      TEXT NOT NULL,
  workflow_source    INTEGER NOT NULL CHECK (workflow_source BETWEEN 1 AND 4),
  run_id             TEXT NOT NULL,
  estimated_tokens   INTEGER NOT NULL,
  tokens             INTEGER NOT NULL DEFAULT 0,
  nano_usd           INTEGER NOT NULL DEFAULT 0,
  unpriced_calls     INTEGER NOT NULL DEFAULT 0,
  overhead_tokens    INTEGER NOT NULL DEFAULT 0,
  overhead_nano_usd  INTEGER NOT NULL DEFAULT 0,
  model_calls        INTEGER NOT NULL DEFAULT 0,
  tool_calls         INTEGER NOT NULL DEFAULT 0,
  duration_us        INTEGER NOT NULL CHECK (duration_us >= 0),
  retry_count        INTEGER NOT NULL,
  max_retries        INTEGER NOT NULL,
  created_by_node_id TEXT NOT NULL,
  create_time        INTEGER NOT NULL,
  update_time        INTEGER NOT NULL,
  start_time         INTEGER NOT NULL,
  end_time           INTEGER NOT NULL,
  revision           INTEGER NOT NULL,
  principal          TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (namespace, id),
  FOREIGN KEY (namespace, epic_id) REFERENCES epics (namespace, id) ON DELETE CASCADE
) STRICT;
CREATE INDEX tasks_by_time ON tasks (namespace, create_time, id);
CREATE INDEX tasks_by_epic ON tasks (namespace, epic_id, create_time, id);

-- What may be large of a task, apart from what others read and change of it: SQLite rewrites a row as a whole
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

-- What tasks.depends_on says, by what is depended on.
CREATE TABLE dependencies (
  namespace  TEXT NOT NULL,
  depends_on TEXT NOT NULL,
  task_id    TEXT NOT NULL,
  PRIMARY KEY (namespace, depends_on, task_id),
  FOREIGN KEY (namespace, task_id) REFERENCES tasks (namespace, id) ON DELETE CASCADE
) STRICT;
-- depends_on is in this index too. Without it the query planner prefers the primary key, of which it reads
-- the whole namespace, because it need not leave that index.
CREATE INDEX dependencies_by_task ON dependencies (namespace, task_id, depends_on);

-- Runs of tasks --------------------------------------------------------------

-- Which run works a task. state: 1 claimed, 2 confirmed, 3 settled, 4 lost, 5 released.
CREATE TABLE claims (
  namespace   TEXT NOT NULL,
  task_id     TEXT NOT NULL,
  run_id      TEXT NOT NULL,
  -- The database of executors that the run is recorded in: only they can tell that there is no such run.
  database_id TEXT NOT NULL DEFAULT '',
  state       INTEGER NOT NULL CHECK (state BETWEEN 1 AND 5),
  lease_until INTEGER NOT NULL,
  PRIMARY KEY (namespace, task_id, run_id),
  FOREIGN KEY (namespace, task_id) REFERENCES tasks (namespace, id) ON DELETE CASCADE
) STRICT;
CREATE UNIQUE INDEX claims_one_active ON claims (namespace, task_id) WHERE state IN (1, 2);
CREATE INDEX claims_by_lease ON claims (lease_until) WHERE state = 1;

-- The outbox to the executors: runs to cancel. A row outlives its task, so it refers to nothing.
CREATE TABLE cancellations (
  namespace   TEXT NOT NULL,
  run_id      TEXT NOT NULL,
  task_id     TEXT NOT NULL,
  database_id TEXT NOT NULL DEFAULT '',
  reason      TEXT NOT NULL,
  confirmed   INTEGER NOT NULL DEFAULT 0, -- whether the run is known to be recorded
  create_time INTEGER NOT NULL,
  lease_until INTEGER NOT NULL,
  PRIMARY KEY (namespace, run_id, task_id)
) STRICT;
-- Of a database by namespace, in the order in which they are due: leases take from each namespace in turn.
CREATE INDEX cancellations_by_namespace ON cancellations (database_id, namespace, lease_until);

-- Usage and prices -----------------------------------------------------------

-- Executors and clients have keys of their own. source: 1 executor, 2 client.
CREATE TABLE usage_entries (
  namespace           TEXT NOT NULL,
  run_id              TEXT NOT NULL,
  source              INTEGER NOT NULL CHECK (source BETWEEN 1 AND 2),
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
CREATE INDEX usage_by_time ON usage_entries (namespace, time, id);
CREATE INDEX usage_by_epic ON usage_entries (namespace, epic_id, time, id) WHERE epic_id <> '';
CREATE INDEX usage_by_task ON usage_entries (namespace, task_id, time, id) WHERE task_id <> '';

CREATE TABLE namespace_totals (
  namespace         TEXT NOT NULL PRIMARY KEY,
  tokens            INTEGER NOT NULL DEFAULT 0,
  nano_usd          INTEGER NOT NULL DEFAULT 0,
  unpriced_calls    INTEGER NOT NULL DEFAULT 0,
  overhead_tokens   INTEGER NOT NULL DEFAULT 0,
  overhead_nano_usd INTEGER NOT NULL DEFAULT 0,
  model_calls       INTEGER NOT NULL DEFAULT 0,
  tool_calls        INTEGER NOT NULL DEFAULT 0
) STRICT;

-- The empty namespace holds the prices that come with the registry. A price ends where the next one of the
-- same namespace, provider and model begins, so the end is not stored.
CREATE TABLE prices (
  id           TEXT NOT NULL PRIMARY KEY,
  namespace    TEXT NOT NULL,
  provider     TEXT NOT NULL,
  model        TEXT NOT NULL,
  valid_from   INTEGER NOT NULL,
  input        INTEGER NOT NULL,
  cached_input INTEGER,
  output       INTEGER NOT NULL,
  reasoning    INTEGER,
  principal    TEXT NOT NULL DEFAULT '',
  UNIQUE (namespace, provider, model, valid_from)
) STRICT;

-- Requests -------------------------------------------------------------------

-- Which changes were carried out, so that a repeated request changes nothing.
CREATE TABLE requests (
  namespace  TEXT NOT NULL,
  method     TEXT NOT NULL,
  request_id TEXT NOT NULL,
  body_hash  BLOB NOT NULL,
  resource   TEXT NOT NULL,
  time       INTEGER NOT NULL,
  PRIMARY KEY (namespace, method, request_id)
) STRICT;
CREATE INDEX requests_by_time ON requests (time);

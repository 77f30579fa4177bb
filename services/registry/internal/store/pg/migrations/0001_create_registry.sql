-- +goose Up
-- Ids and names compare byte by byte (COLLATE "C"), so that their order is that of Go and of SQLite.
-- Totals of money are nano-USD. principal is who wrote last, from the API key that was shown.

-- Epics and tasks ------------------------------------------------------------

CREATE TABLE epics (
  namespace          text COLLATE "C" NOT NULL,
  id                 text COLLATE "C" NOT NULL,
  title              text NOT NULL,
  description        text NOT NULL,
  search             text NOT NULL, -- title and description in the case in which they are searched
  tags               text[] NOT NULL,
  labels             jsonb NOT NULL,
  state              smallint NOT NULL CHECK (state BETWEEN 1 AND 6),
  priority           smallint NOT NULL CHECK (priority BETWEEN 1 AND 4),
  budget_tokens      bigint,
  budget_nano_usd    bigint,
  tokens             bigint NOT NULL DEFAULT 0,
  nano_usd           bigint NOT NULL DEFAULT 0,
  unpriced_calls     bigint NOT NULL DEFAULT 0,
  overhead_tokens    bigint NOT NULL DEFAULT 0,
  overhead_nano_usd  bigint NOT NULL DEFAULT 0,
  model_calls        bigint NOT NULL DEFAULT 0,
  tool_calls         bigint NOT NULL DEFAULT 0,
  total_tasks        integer NOT NULL CHECK (total_tasks >= 0),
  completed_tasks    integer NOT NULL CHECK (completed_tasks >= 0),
  failed_tasks       integer NOT NULL CHECK (failed_tasks >= 0),
  -- Of all its tasks together, so that they are bounded without being read.
  dependencies       integer NOT NULL DEFAULT 0,
  result_summary     text NOT NULL,
  workflow_slug      text NOT NULL,
  user_id            text NOT NULL,
  created_by_node_id text NOT NULL,
  create_time        timestamptz NOT NULL,
  update_time        timestamptz NOT NULL,
  end_time           timestamptz,
  revision           bigint NOT NULL,
  principal          text NOT NULL DEFAULT '',
  PRIMARY KEY (namespace, id)
);
CREATE INDEX epics_by_time ON epics (namespace, create_time, id);

CREATE TABLE tasks (
  namespace          text COLLATE "C" NOT NULL,
  id                 text COLLATE "C" NOT NULL,
  epic_id            text COLLATE "C" NOT NULL,
  title              text NOT NULL,
  tags               text[] NOT NULL,
  labels             jsonb NOT NULL,
  state              smallint NOT NULL CHECK (state BETWEEN 1 AND 6),
  priority           smallint NOT NULL CHECK (priority BETWEEN 1 AND 4),
  depends_on         text[] NOT NULL,
  workflow_slug      text NOT NULL,
  workflow_source    smallint NOT NULL CHECK (workflow_source BETWEEN 1 AND 4),
  run_id             text NOT NULL,
  estimated_tokens   bigint NOT NULL,
  tokens             bigint NOT NULL DEFAULT 0,
  nano_usd           bigint NOT NULL DEFAULT 0,
  unpriced_calls     bigint NOT NULL DEFAULT 0,
  overhead_tokens    bigint NOT NULL DEFAULT 0,
  overhead_nano_usd  bigint NOT NULL DEFAULT 0,
  model_calls        bigint NOT NULL DEFAULT 0,
  tool_calls         bigint NOT NULL DEFAULT 0,
  duration_us        bigint NOT NULL CHECK (duration_us >= 0),
  retry_count        integer NOT NULL,
  max_retries        integer NOT NULL,
  created_by_node_id text NOT NULL,
  create_time        timestamptz NOT NULL,
  update_time        timestamptz NOT NULL,
  start_time         timestamptz,
  end_time           timestamptz,
  revision           bigint NOT NULL,
  principal          text NOT NULL DEFAULT '',
  PRIMARY KEY (namespace, id),
  FOREIGN KEY (namespace, epic_id) REFERENCES epics (namespace, id) ON DELETE CASCADE
);
CREATE INDEX tasks_by_time ON tasks (namespace, create_time, id);
CREATE INDEX tasks_by_epic ON tasks (namespace, epic_id, create_time, id);

-- What may be large of a task, apart from what others read and change of it: each change writes a whole row.
CREATE TABLE task_bodies (
  namespace      text COLLATE "C" NOT NULL,
  id             text COLLATE "C" NOT NULL,
  description    text NOT NULL,
  requirements   bytea,
  result_summary text NOT NULL,
  error_message  text NOT NULL,
  notes          text NOT NULL,
  PRIMARY KEY (namespace, id),
  FOREIGN KEY (namespace, id) REFERENCES tasks (namespace, id) ON DELETE CASCADE
);

-- What tasks.depends_on says, by what is depended on.
CREATE TABLE dependencies (
  namespace  text COLLATE "C" NOT NULL,
  depends_on text COLLATE "C" NOT NULL,
  task_id    text COLLATE "C" NOT NULL,
  PRIMARY KEY (namespace, depends_on, task_id),
  FOREIGN KEY (namespace, task_id) REFERENCES tasks (namespace, id) ON DELETE CASCADE
);
CREATE INDEX dependencies_by_task ON dependencies (namespace, task_id);

-- Runs of tasks --------------------------------------------------------------

-- Which run works a task. state: 1 claimed, 2 confirmed, 3 settled, 4 lost, 5 released.
CREATE TABLE claims (
  namespace   text COLLATE "C" NOT NULL,
  task_id     text COLLATE "C" NOT NULL,
  run_id      text COLLATE "C" NOT NULL,
  -- The database of executors that the run is recorded in: only they can tell that there is no such run.
  database_id text COLLATE "C" NOT NULL DEFAULT '',
  state       smallint NOT NULL CHECK (state BETWEEN 1 AND 5),
  lease_until timestamptz NOT NULL,
  PRIMARY KEY (namespace, task_id, run_id),
  FOREIGN KEY (namespace, task_id) REFERENCES tasks (namespace, id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX claims_one_active ON claims (namespace, task_id) WHERE state IN (1, 2);
CREATE INDEX claims_by_lease ON claims (lease_until) WHERE state = 1;

-- The outbox to the executors: runs to cancel. A row outlives its task, so it refers to nothing.
CREATE TABLE cancellations (
  namespace   text COLLATE "C" NOT NULL,
  run_id      text COLLATE "C" NOT NULL,
  task_id     text COLLATE "C" NOT NULL,
  database_id text COLLATE "C" NOT NULL DEFAULT '',
  reason      text NOT NULL,
  confirmed   boolean NOT NULL DEFAULT false, -- whether the run is known to be recorded
  create_time timestamptz NOT NULL,
  lease_until timestamptz NOT NULL,
  PRIMARY KEY (namespace, run_id, task_id)
);
-- Of a database by namespace, in the order in which they are due: leases take from each namespace in turn.
CREATE INDEX cancellations_by_namespace ON cancellations (database_id, namespace, lease_until);

-- Usage and prices -----------------------------------------------------------

-- Executors and clients have keys of their own. source: 1 executor, 2 client.
CREATE TABLE usage_entries (
  namespace           text COLLATE "C" NOT NULL,
  run_id              text COLLATE "C" NOT NULL,
  source              smallint NOT NULL DEFAULT 1 CHECK (source BETWEEN 1 AND 2),
  node_id             text COLLATE "C" NOT NULL,
  visit               integer NOT NULL,
  item                integer NOT NULL,
  attempt             integer NOT NULL,
  call                integer NOT NULL,
  id                  text COLLATE "C" NOT NULL,
  kind                smallint NOT NULL CHECK (kind BETWEEN 1 AND 3),
  task_id             text COLLATE "C" NOT NULL,
  epic_id             text COLLATE "C" NOT NULL,
  provider            text NOT NULL,
  model               text NOT NULL,
  input_tokens        bigint NOT NULL,
  cached_input_tokens bigint NOT NULL,
  output_tokens       bigint NOT NULL,
  reasoning_tokens    bigint NOT NULL,
  cost_nano_usd       bigint, -- null where no price is known
  price_id            text NOT NULL,
  time                timestamptz NOT NULL,
  failed              boolean NOT NULL,
  recorded_by         text NOT NULL DEFAULT '',
  principal           text NOT NULL DEFAULT '',
  PRIMARY KEY (namespace, run_id, source, node_id, visit, item, attempt, call)
);
CREATE INDEX usage_by_time ON usage_entries (namespace, time, id);
CREATE INDEX usage_by_epic ON usage_entries (namespace, epic_id, time, id) WHERE epic_id <> '';
CREATE INDEX usage_by_task ON usage_entries (namespace, task_id, time, id) WHERE task_id <> '';

CREATE TABLE namespace_totals (
  namespace         text COLLATE "C" PRIMARY KEY,
  tokens            bigint NOT NULL DEFAULT 0,
  nano_usd          bigint NOT NULL DEFAULT 0,
  unpriced_calls    bigint NOT NULL DEFAULT 0,
  overhead_tokens   bigint NOT NULL DEFAULT 0,
  overhead_nano_usd bigint NOT NULL DEFAULT 0,
  model_calls       bigint NOT NULL DEFAULT 0,
  tool_calls        bigint NOT NULL DEFAULT 0
);

-- The empty namespace holds the prices that come with the registry. A price ends where the next one of the
-- same namespace, provider and model begins, so the end is not stored.
CREATE TABLE prices (
  id           text COLLATE "C" PRIMARY KEY,
  namespace    text COLLATE "C" NOT NULL,
  provider     text COLLATE "C" NOT NULL,
  model        text COLLATE "C" NOT NULL,
  valid_from   timestamptz NOT NULL,
  input        bigint NOT NULL,
  cached_input bigint,
  output       bigint NOT NULL,
  reasoning    bigint,
  principal    text NOT NULL DEFAULT '',
  CONSTRAINT prices_dated UNIQUE (namespace, provider, model, valid_from)
);

-- Requests -------------------------------------------------------------------

-- Which changes were carried out, so that a repeated request changes nothing.
CREATE TABLE requests (
  namespace  text COLLATE "C" NOT NULL,
  method     text COLLATE "C" NOT NULL,
  request_id text COLLATE "C" NOT NULL,
  body_hash  bytea NOT NULL,
  resource   text NOT NULL,
  time       timestamptz NOT NULL,
  PRIMARY KEY (namespace, method, request_id)
);
CREATE INDEX requests_by_time ON requests (time);

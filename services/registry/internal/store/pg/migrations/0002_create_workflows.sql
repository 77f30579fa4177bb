-- +goose Up
-- The catalog of workflows.

CREATE TABLE workflows (
  namespace      text COLLATE "C" NOT NULL,
  id             text COLLATE "C" NOT NULL,
  slug           text COLLATE "C" NOT NULL,
  -- What the slug is made of, so that the next number of a name is found.
  slug_base      text COLLATE "C" NOT NULL,
  slug_number    bigint NOT NULL,
  name           text NOT NULL,
  description    text NOT NULL,
  tags           text[] NOT NULL,
  state          smallint NOT NULL CHECK (state BETWEEN 1 AND 3), -- 1 active, 2 deprecated, 3 deleted
  deprecation    text NOT NULL,
  latest_version bigint NOT NULL,
  version_count  integer NOT NULL,
  aliases        text NOT NULL, -- JSON
  forked_from    text NOT NULL,
  capabilities   text NOT NULL, -- of the newest version, as JSON
  nodes          integer NOT NULL,
  edges          integer NOT NULL,
  completed      bigint NOT NULL DEFAULT 0,
  failed         bigint NOT NULL DEFAULT 0,
  canceled       bigint NOT NULL DEFAULT 0,
  nano_usd       bigint NOT NULL DEFAULT 0,
  tokens         bigint NOT NULL DEFAULT 0,
  change         bigint NOT NULL, -- the last change that concerns it, of those that catalogs counts
  create_time    timestamptz NOT NULL,
  update_time    timestamptz NOT NULL,
  delete_time    timestamptz,
  revision       bigint NOT NULL,
  principal      text NOT NULL,
  PRIMARY KEY (namespace, id)
);
CREATE UNIQUE INDEX workflows_by_slug ON workflows (namespace, slug);
CREATE INDEX workflows_by_base ON workflows (namespace, slug_base, slug_number);
CREATE INDEX workflows_by_time ON workflows (namespace, create_time, id) WHERE state < 3;
CREATE INDEX workflows_by_change ON workflows (namespace, change);
CREATE INDEX workflows_deleted ON workflows (delete_time) WHERE state = 3;

-- How many changes the workflows of a namespace have had. Who changes one holds the row.
CREATE TABLE catalogs (
  namespace text COLLATE "C" PRIMARY KEY,
  change    bigint NOT NULL
);

CREATE TABLE workflow_versions (
  namespace       text COLLATE "C" NOT NULL,
  workflow_id     text COLLATE "C" NOT NULL,
  version         bigint NOT NULL,
  form            smallint NOT NULL CHECK (form BETWEEN 1 AND 2), -- 1 definition, 2 graph
  hash            text COLLATE "C" NOT NULL,
  graph_hash      text NOT NULL,
  name            text NOT NULL,
  label           text NOT NULL,
  description     text NOT NULL,
  nodes           integer NOT NULL,
  edges           integer NOT NULL,
  budget_nano_usd bigint,
  budget_tokens   bigint,
  completed       bigint NOT NULL DEFAULT 0,
  failed          bigint NOT NULL DEFAULT 0,
  canceled        bigint NOT NULL DEFAULT 0,
  nano_usd        bigint NOT NULL DEFAULT 0,
  tokens          bigint NOT NULL DEFAULT 0,
  create_time     timestamptz NOT NULL,
  principal       text NOT NULL,
  PRIMARY KEY (namespace, workflow_id, version),
  FOREIGN KEY (namespace, workflow_id) REFERENCES workflows (namespace, id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX workflow_versions_by_hash ON workflow_versions (namespace, workflow_id, hash);

-- What may be large of a version and never changes, apart from what is counted: each change writes a whole row.
CREATE TABLE workflow_texts (
  namespace   text COLLATE "C" NOT NULL,
  workflow_id text COLLATE "C" NOT NULL,
  version     bigint NOT NULL,
  source      text NOT NULL,
  graph       bytea NOT NULL,
  PRIMARY KEY (namespace, workflow_id, version),
  FOREIGN KEY (namespace, workflow_id, version) REFERENCES workflow_versions (namespace, workflow_id, version) ON DELETE CASCADE
);

-- Which runs are counted, so that none is counted twice.
CREATE TABLE workflow_runs (
  namespace   text COLLATE "C" NOT NULL,
  run_id      text COLLATE "C" NOT NULL,
  workflow_id text COLLATE "C" NOT NULL,
  version     bigint NOT NULL,
  time        timestamptz NOT NULL,
  PRIMARY KEY (namespace, run_id)
);
CREATE INDEX workflow_runs_by_time ON workflow_runs (time);

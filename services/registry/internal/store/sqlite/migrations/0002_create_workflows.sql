-- +goose Up
-- The catalog of workflows.

CREATE TABLE workflows (
  namespace      TEXT NOT NULL,
  id             TEXT NOT NULL,
  slug           TEXT NOT NULL,
  -- What the slug is made of, so that the next number of a name is found.
  slug_base      TEXT NOT NULL,
  slug_number    INTEGER NOT NULL,
  name           TEXT NOT NULL,
  description    TEXT NOT NULL,
  tags           TEXT NOT NULL,
  state          INTEGER NOT NULL CHECK (state BETWEEN 1 AND 3), -- 1 active, 2 deprecated, 3 deleted
  deprecation    TEXT NOT NULL,
  latest_version INTEGER NOT NULL,
  version_count  INTEGER NOT NULL,
  aliases        TEXT NOT NULL, -- JSON
  forked_from    TEXT NOT NULL,
  capabilities   TEXT NOT NULL, -- of the newest version, as JSON
  nodes          INTEGER NOT NULL,
  edges          INTEGER NOT NULL,
  completed      INTEGER NOT NULL DEFAULT 0,
  failed         INTEGER NOT NULL DEFAULT 0,
  canceled       INTEGER NOT NULL DEFAULT 0,
  nano_usd       INTEGER NOT NULL DEFAULT 0,
  tokens         INTEGER NOT NULL DEFAULT 0,
  change         INTEGER NOT NULL, -- the last change that concerns it, of those that catalogs counts
  create_time    INTEGER NOT NULL,
  update_time    INTEGER NOT NULL,
  delete_time    INTEGER,
  revision       INTEGER NOT NULL,
  principal      TEXT NOT NULL,
  PRIMARY KEY (namespace, id)
) STRICT;
CREATE UNIQUE INDEX workflows_by_slug ON workflows (namespace, slug);
CREATE INDEX workflows_by_base ON workflows (namespace, slug_base, slug_number);
CREATE INDEX workflows_by_time ON workflows (namespace, create_time, id) WHERE state < 3;
CREATE INDEX workflows_by_change ON workflows (namespace, change);
CREATE INDEX workflows_deleted ON workflows (delete_time) WHERE state = 3;

-- How many changes the workflows of a namespace have had. Who changes one holds the row.
CREATE TABLE catalogs (
  namespace TEXT PRIMARY KEY NOT NULL,
  change    INTEGER NOT NULL
) STRICT;

CREATE TABLE workflow_versions (
  namespace       TEXT NOT NULL,
  workflow_id     TEXT NOT NULL,
  version         INTEGER NOT NULL,
  form            INTEGER NOT NULL CHECK (form BETWEEN 1 AND 2), -- 1 definition, 2 graph
  hash            TEXT NOT NULL,
  graph_hash      TEXT NOT NULL,
  name            TEXT NOT NULL,
  label           TEXT NOT NULL,
  description     TEXT NOT NULL,
  nodes           INTEGER NOT NULL,
  edges           INTEGER NOT NULL,
  budget_nano_usd INTEGER,
  budget_tokens   INTEGER,
  completed       INTEGER NOT NULL DEFAULT 0,
  failed          INTEGER NOT NULL DEFAULT 0,
  canceled        INTEGER NOT NULL DEFAULT 0,
  nano_usd        INTEGER NOT NULL DEFAULT 0,
  tokens          INTEGER NOT NULL DEFAULT 0,
  create_time     INTEGER NOT NULL,
  principal       TEXT NOT NULL,
  PRIMARY KEY (namespace, workflow_id, version),
  FOREIGN KEY (namespace, workflow_id) REFERENCES workflows (namespace, id) ON DELETE CASCADE
) STRICT;
CREATE UNIQUE INDEX workflow_versions_by_hash ON workflow_versions (namespace, workflow_id, hash);

-- What may be large of a version and never changes, apart from what is counted: each change writes a whole row.
CREATE TABLE workflow_texts (
  namespace   TEXT NOT NULL,
  workflow_id TEXT NOT NULL,
  version     INTEGER NOT NULL,
  source      TEXT NOT NULL,
  graph       BLOB NOT NULL,
  PRIMARY KEY (namespace, workflow_id, version),
  FOREIGN KEY (namespace, workflow_id, version) REFERENCES workflow_versions (namespace, workflow_id, version) ON DELETE CASCADE
) STRICT;

-- Which runs are counted, so that none is counted twice.
CREATE TABLE workflow_runs (
  namespace   TEXT NOT NULL,
  run_id      TEXT NOT NULL,
  workflow_id TEXT NOT NULL,
  version     INTEGER NOT NULL,
  time        INTEGER NOT NULL,
  PRIMARY KEY (namespace, run_id)
) STRICT;
CREATE INDEX workflow_runs_by_time ON workflow_runs (time);

-- +goose Up
-- What remote workers serve, or once served: graphs may name these actors though no worker is there just now.
CREATE TABLE remote_actors (
    namespace   TEXT NOT NULL,
    name        TEXT NOT NULL,
    description TEXT NOT NULL,
    effect      TEXT NOT NULL,
    version     TEXT NOT NULL,
    args_schema BLOB NOT NULL,
    last_seen   INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

-- Who is connected where. Rows count while their executor has this incarnation and lives.
CREATE TABLE workers (
    executor_id  TEXT NOT NULL REFERENCES executors (id) ON DELETE CASCADE,
    incarnation  INTEGER NOT NULL,
    namespace    TEXT NOT NULL,
    worker_id    TEXT NOT NULL,
    actors       TEXT NOT NULL, -- a JSON list of names
    slots        INTEGER NOT NULL,
    busy         INTEGER NOT NULL,
    connect_time INTEGER NOT NULL,
    user_agent   TEXT NOT NULL,
    draining     INTEGER NOT NULL,
    PRIMARY KEY (executor_id, namespace, worker_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX workers_namespace ON workers (namespace);

CREATE TABLE worker_routes (
    namespace   TEXT NOT NULL,
    actor       TEXT NOT NULL,
    executor_id TEXT NOT NULL REFERENCES executors (id) ON DELETE CASCADE,
    incarnation INTEGER NOT NULL,
    slots       INTEGER NOT NULL,
    busy        INTEGER NOT NULL,
    PRIMARY KEY (namespace, actor, executor_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX worker_routes_executor ON worker_routes (executor_id);

-- +goose Up
-- What remote workers serve, or once served: graphs may name these actors though no worker is there just now.
CREATE TABLE remote_actors (
    namespace   text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    description text  NOT NULL,
    effect      text  NOT NULL,
    version     text  NOT NULL,
    args_schema bytea NOT NULL,
    last_seen   timestamptz NOT NULL,
    PRIMARY KEY (namespace, name)
);

-- Who is connected where. Rows count while their executor has this incarnation and lives.
CREATE TABLE workers (
    executor_id  text COLLATE "C" NOT NULL REFERENCES executors (id) ON DELETE CASCADE,
    incarnation  bigint NOT NULL,
    namespace    text COLLATE "C" NOT NULL,
    worker_id    text COLLATE "C" NOT NULL,
    actors       text[]  NOT NULL,
    slots        integer NOT NULL,
    busy         integer NOT NULL,
    connect_time timestamptz NOT NULL,
    user_agent   text    NOT NULL,
    draining     boolean NOT NULL,
    PRIMARY KEY (executor_id, namespace, worker_id)
);
CREATE INDEX workers_namespace ON workers (namespace);

CREATE TABLE worker_routes (
    namespace   text COLLATE "C" NOT NULL,
    actor       text COLLATE "C" NOT NULL,
    executor_id text COLLATE "C" NOT NULL REFERENCES executors (id) ON DELETE CASCADE,
    incarnation bigint  NOT NULL,
    slots       integer NOT NULL,
    busy        integer NOT NULL,
    PRIMARY KEY (namespace, actor, executor_id)
);
CREATE INDEX worker_routes_executor ON worker_routes (executor_id);

-- +goose Up

-- Triggers -------------------------------------------------------------------

-- Workflows whose triggers were activated.
CREATE TABLE trigger_activations (
    namespace   text COLLATE "C" NOT NULL,
    workflow    text COLLATE "C" NOT NULL,
    workflow_id text COLLATE "C" NOT NULL,
    ref         text COLLATE "C" NOT NULL, -- what was activated: SLUG, SLUG@ALIAS or SLUG@VERSION
    version     bigint NOT NULL,
    state       text COLLATE "C" NOT NULL,
    reason      text COLLATE "C" NOT NULL,
    settled     integer NOT NULL, -- whether its schedules are as its triggers say
    checked     timestamptz NOT NULL, -- when it was last asked what ref stands for
    create_time timestamptz NOT NULL,
    update_time timestamptz NOT NULL,
    principal   text COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, workflow)
);
CREATE INDEX trigger_activations_checked ON trigger_activations (checked) WHERE state = 'ACTIVE' OR settled = 0;

CREATE TABLE triggers (
    namespace   text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    workflow    text COLLATE "C" NOT NULL,
    version     bigint NOT NULL,
    name        text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    path        text COLLATE "C" NOT NULL,
    state       text COLLATE "C" NOT NULL,
    reason      text COLLATE "C" NOT NULL,
    secret      text COLLATE "C" NOT NULL,
    spec        bytea NOT NULL,
    create_time timestamptz NOT NULL,
    update_time timestamptz NOT NULL,
    PRIMARY KEY (namespace, id)
);
CREATE UNIQUE INDEX triggers_name ON triggers (namespace, workflow, name);
CREATE UNIQUE INDEX triggers_path ON triggers (namespace, path) WHERE path <> '' AND state = 'ACTIVE';
CREATE INDEX triggers_kind        ON triggers (kind, namespace, id) WHERE state = 'ACTIVE';

-- What triggers were told, and the run that came of it.
CREATE TABLE trigger_deliveries (
    namespace    text COLLATE "C" NOT NULL,
    id           text COLLATE "C" NOT NULL,
    trigger_id   text COLLATE "C" NOT NULL,
    event_id     text COLLATE "C" NOT NULL,
    state        text COLLATE "C" NOT NULL,
    run_id       text COLLATE "C" NOT NULL, -- the run that it starts, known before it is started
    reason       text COLLATE "C" NOT NULL,
    message      text COLLATE "C" NOT NULL,
    attempts     bigint NOT NULL,
    repeats      bigint NOT NULL,
    depth        bigint NOT NULL,
    repeat_of    text COLLATE "C" NOT NULL,
    details      bytea NOT NULL, -- for whom the run is
    receive_time timestamptz NOT NULL,
    due          timestamptz, -- when it is to be tried
    end_time     timestamptz,
    event        bytea NOT NULL,
    PRIMARY KEY (namespace, id)
);
CREATE UNIQUE INDEX trigger_deliveries_once ON trigger_deliveries (namespace, trigger_id, event_id);
CREATE INDEX trigger_deliveries_of_trigger  ON trigger_deliveries (namespace, trigger_id, id);
CREATE INDEX trigger_deliveries_open        ON trigger_deliveries (namespace) WHERE state = 'RECEIVED';
CREATE INDEX trigger_deliveries_due         ON trigger_deliveries (due) WHERE state = 'RECEIVED';
CREATE INDEX trigger_deliveries_state       ON trigger_deliveries (namespace, state, id);
CREATE INDEX trigger_deliveries_old         ON trigger_deliveries (end_time) WHERE end_time IS NOT NULL;

-- +goose Up

-- Triggers -------------------------------------------------------------------

-- Workflows whose triggers were activated.
CREATE TABLE trigger_activations (
    namespace   TEXT NOT NULL,
    workflow    TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    ref         TEXT NOT NULL, -- what was activated: SLUG, SLUG@ALIAS or SLUG@VERSION
    version     INTEGER NOT NULL,
    state       TEXT NOT NULL,
    reason      TEXT NOT NULL,
    settled     INTEGER NOT NULL, -- whether its schedules are as its triggers say
    checked     INTEGER NOT NULL, -- when it was last asked what ref stands for
    create_time INTEGER NOT NULL,
    update_time INTEGER NOT NULL,
    principal   TEXT NOT NULL,
    PRIMARY KEY (namespace, workflow)
) STRICT, WITHOUT ROWID;
CREATE INDEX trigger_activations_checked ON trigger_activations (checked) WHERE state = 'ACTIVE' OR settled = 0;

CREATE TABLE triggers (
    namespace   TEXT NOT NULL,
    id          TEXT NOT NULL,
    workflow    TEXT NOT NULL,
    version     INTEGER NOT NULL,
    name        TEXT NOT NULL,
    kind        TEXT NOT NULL,
    path        TEXT NOT NULL,
    state       TEXT NOT NULL,
    reason      TEXT NOT NULL,
    secret      TEXT NOT NULL,
    spec        BLOB NOT NULL,
    create_time INTEGER NOT NULL,
    update_time INTEGER NOT NULL,
    PRIMARY KEY (namespace, id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX triggers_name ON triggers (namespace, workflow, name);
CREATE UNIQUE INDEX triggers_path ON triggers (namespace, path) WHERE path <> '' AND state = 'ACTIVE';
CREATE INDEX triggers_kind        ON triggers (kind, namespace, id) WHERE state = 'ACTIVE';

-- What triggers were told, and the run that came of it.
CREATE TABLE trigger_deliveries (
    namespace    TEXT NOT NULL,
    id           TEXT NOT NULL,
    trigger_id   TEXT NOT NULL,
    event_id     TEXT NOT NULL,
    state        TEXT NOT NULL,
    run_id       TEXT NOT NULL, -- the run that it starts, known before it is started
    reason       TEXT NOT NULL,
    message      TEXT NOT NULL,
    attempts     INTEGER NOT NULL,
    repeats      INTEGER NOT NULL,
    depth        INTEGER NOT NULL,
    repeat_of    TEXT NOT NULL,
    details      BLOB NOT NULL, -- for whom the run is
    receive_time INTEGER NOT NULL,
    due          INTEGER NOT NULL, -- when it is to be tried
    end_time     INTEGER NOT NULL,
    event        BLOB NOT NULL,
    PRIMARY KEY (namespace, id)
) STRICT;
CREATE UNIQUE INDEX trigger_deliveries_once ON trigger_deliveries (namespace, trigger_id, event_id);
CREATE INDEX trigger_deliveries_of_trigger  ON trigger_deliveries (namespace, trigger_id, id);
CREATE INDEX trigger_deliveries_open        ON trigger_deliveries (namespace) WHERE state = 'RECEIVED';
CREATE INDEX trigger_deliveries_due         ON trigger_deliveries (due) WHERE state = 'RECEIVED';
CREATE INDEX trigger_deliveries_state       ON trigger_deliveries (namespace, state, id);
CREATE INDEX trigger_deliveries_old         ON trigger_deliveries (end_time) WHERE end_time > 0;

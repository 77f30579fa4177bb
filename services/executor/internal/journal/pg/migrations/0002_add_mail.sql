-- +goose Up
-- Executors of the first release would take parked runs for lost ones, and read no mail. So none may be alive by now, and what makes
-- one that comes back fail at its first statement about runs is that cancel_state is gone.
-- +goose StatementBegin
DO $$
DECLARE
    alive text;
BEGIN
    LOCK TABLE executors IN SHARE ROW EXCLUSIVE MODE;
    SELECT string_agg(id, ', ' ORDER BY id) INTO alive FROM executors WHERE heartbeat > clock_timestamp() - interval '15 seconds';
    IF alive IS NOT NULL THEN
        RAISE EXCEPTION 'executors of an earlier release are running: %', alive
            USING ERRCODE = 'EG002', HINT = 'stop them, then migrate again; one that was killed counts as running for 15 s';
    END IF;
END
$$;
-- +goose StatementEnd

-- What happens outside of a run and must be taken into account by it.
CREATE TABLE mail (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    time      timestamptz NOT NULL,
    run_id    text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    body      bytea,
    UNIQUE (run_id, kind, key)
);

-- A cancel is a piece of mail.
INSERT INTO mail (time, run_id, namespace, kind, key, body)
SELECT coalesce(cancel_time, now()), run_id, namespace, 'CANCEL', '', convert_to(cancel_reason, 'UTF8') FROM runs WHERE cancel_state = 1 AND state < 6;
ALTER TABLE runs DROP COLUMN cancel_state;

ALTER TABLE runs
    ADD COLUMN graph_revision bigint NOT NULL DEFAULT 0,
    ADD COLUMN deadline       timestamptz,
    ADD COLUMN priority       integer NOT NULL DEFAULT 0,
    ADD COLUMN forked_from    text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN schedule_id    text COLLATE "C" NOT NULL DEFAULT '';

CREATE INDEX runs_by_schedule ON runs (namespace, schedule_id, create_time DESC, run_id DESC) WHERE schedule_id <> '';

-- Parked runs have no owner, and are in none of the indexes that the scans of owners use.
DROP INDEX runs_open;
CREATE INDEX runs_owned    ON runs (owner_id, owner_incarnation, run_id) WHERE state < 6 AND owner_id <> '';
CREATE INDEX runs_released ON runs (run_id) WHERE state = 2 AND owner_id = '';
CREATE INDEX runs_due      ON runs (wake_time) WHERE state IN (1, 3) AND owner_id = '' AND wake_time IS NOT NULL;

-- Until now a waiting run kept no job of its own: those that a stop released are due at once.
UPDATE runs SET wake_time = coalesce(wake_time, now()) WHERE state IN (1, 3) AND owner_id = '';

-- Questions that runs ask.
CREATE TABLE interrupts (
    id            text COLLATE "C" PRIMARY KEY,
    namespace     text COLLATE "C" NOT NULL,
    run_id        text COLLATE "C" NOT NULL,
    root_run_id   text COLLATE "C" NOT NULL,
    node_id       text NOT NULL,
    visit         integer NOT NULL,
    item          integer NOT NULL,
    state         integer NOT NULL,
    create_time   timestamptz NOT NULL,
    expire_time   timestamptz,
    close_time    timestamptz,
    decision      text NOT NULL DEFAULT '',
    closed_by     text NOT NULL DEFAULT '',
    prompt        bytea,
    schema        bytea,
    approve       bytea,
    default_value bytea,
    answer        bytea
);
CREATE INDEX interrupts_by_time ON interrupts (namespace, create_time DESC, id DESC);
CREATE INDEX interrupts_open    ON interrupts (namespace, create_time DESC, id DESC) WHERE state = 1;
CREATE INDEX interrupts_by_root ON interrupts (root_run_id, create_time DESC, id DESC);
CREATE INDEX interrupts_by_run  ON interrupts (run_id);

-- +goose Up
-- The least id that a run of this time can have.
-- +goose StatementBegin
CREATE FUNCTION run_id_at(at timestamptz) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT 'run_' || string_agg(substr('0123456789abcdefghjkmnpqrstvwxyz', ((ms >> (5 * i)) & 31)::int + 1, 1), '' ORDER BY i DESC) || repeat('0', 16)
    FROM (SELECT floor(extract(epoch FROM at) * 1000)::bigint AS ms) t, generate_series(0, 9) AS i
$$;
-- +goose StatementEnd

-- Events lie in partitions by the time of their run's id. What is there is the first one. The last one is for what has no other, and stays empty.
ALTER TABLE events RENAME TO events_old;
ALTER INDEX events_pkey RENAME TO events_old_pkey;
CREATE TABLE events (LIKE events_old INCLUDING ALL) PARTITION BY RANGE (run_id);
-- +goose StatementBegin
DO $$
DECLARE
    bound timestamptz := date_trunc('day', now(), 'UTC') + interval '2 days';
    name  text;
BEGIN
    EXECUTE format('ALTER TABLE events ATTACH PARTITION events_old FOR VALUES FROM (MINVALUE) TO (%L)', run_id_at(bound));
    FOR i IN 1..2 LOOP
        name := 'events_to_' || to_char((bound + interval '7 days') AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISS');
        EXECUTE format('CREATE TABLE %I PARTITION OF events FOR VALUES FROM (%L) TO (%L)', name, run_id_at(bound), run_id_at(bound + interval '7 days'));
        bound := bound + interval '7 days';
    END LOOP;
END
$$;
-- +goose StatementEnd
CREATE TABLE events_default PARTITION OF events DEFAULT;

-- What has ended, by when: for retention.
CREATE INDEX runs_by_end ON runs (end_time, run_id) WHERE state >= 6;

-- Where runs are that were taken out of the database.
CREATE TABLE archives (
    namespace    text COLLATE "C" NOT NULL,
    run_id       text COLLATE "C" NOT NULL,
    place        text NOT NULL,
    archive_time timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace, run_id)
);

-- +goose Up

-- How far the feed of a namespace was followed for its triggers. An executor that follows it moves the
-- cursor only from where it has read it, so that of two one alone goes on.
CREATE TABLE trigger_feeds (
    namespace   text NOT NULL,
    cursor      bigint NOT NULL,
    update_time timestamptz NOT NULL,
    PRIMARY KEY (namespace)
);

-- The cursor behind which the events are that a trigger is told of: those from before it was on are not.
ALTER TABLE triggers ADD COLUMN since bigint NOT NULL DEFAULT 0;

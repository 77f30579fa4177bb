-- +goose Up
-- What has changed, for those who follow it.

-- How far the feed of a namespace has come. Who writes events holds the row until it has committed, and locks
-- nothing after it: so seq has no gaps and grows in the order of commits. Events up to gone were removed.
CREATE TABLE feeds (
  namespace text COLLATE "C" PRIMARY KEY,
  seq       bigint NOT NULL,
  gone      bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE TABLE feed (
  namespace text COLLATE "C" NOT NULL,
  seq       bigint NOT NULL,
  time      timestamptz NOT NULL,
  epic_id   text COLLATE "C" NOT NULL, -- empty for none
  slug      text COLLATE "C" NOT NULL, -- of a workflow; empty for none
  kind      text COLLATE "C" NOT NULL,
  body      text NOT NULL,             -- JSON
  PRIMARY KEY (namespace, seq)
);
CREATE INDEX feed_by_epic ON feed (namespace, epic_id, seq) WHERE epic_id <> '';
CREATE INDEX feed_by_workflow ON feed (namespace, slug, seq) WHERE slug <> '';

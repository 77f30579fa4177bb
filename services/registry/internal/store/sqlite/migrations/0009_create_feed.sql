-- +goose Up
-- What has changed, for those who follow it.

-- How far the feed of a namespace has come. Who writes events holds the row until it has committed, and locks
-- nothing after it: so seq has no gaps and grows in the order of commits. Events up to gone were removed.
CREATE TABLE feeds (
  namespace TEXT PRIMARY KEY,
  seq       INTEGER NOT NULL,
  gone      INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE feed (
  namespace TEXT NOT NULL,
  seq       INTEGER NOT NULL,
  time      INTEGER NOT NULL,
  epic_id   TEXT NOT NULL, -- empty for none
  slug      TEXT NOT NULL, -- of a workflow; empty for none
  kind      TEXT NOT NULL,
  body      TEXT NOT NULL, -- JSON
  PRIMARY KEY (namespace, seq)
) STRICT;
CREATE INDEX feed_by_epic ON feed (namespace, epic_id, seq) WHERE epic_id <> '';
CREATE INDEX feed_by_workflow ON feed (namespace, slug, seq) WHERE slug <> '';

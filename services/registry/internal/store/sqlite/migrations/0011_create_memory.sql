-- +goose Up
-- What is remembered beyond runs. place is the scope: "namespace", or "user/", "epic/" or "workflow/" with a
-- subject. kind and origin are those of the API; confidence is in thousandths.
CREATE TABLE memories (
  namespace   TEXT NOT NULL,
  id          TEXT NOT NULL,
  place       TEXT NOT NULL,
  key         TEXT NOT NULL,
  kind        INTEGER NOT NULL CHECK (kind BETWEEN 1 AND 3),
  text        TEXT NOT NULL,
  value       TEXT NOT NULL, -- JSON as it was written; empty for none
  tags        TEXT NOT NULL,
  origin      INTEGER NOT NULL CHECK (origin BETWEEN 1 AND 4),
  source      TEXT NOT NULL,
  user_id     TEXT NOT NULL,
  confidence  INTEGER NOT NULL CHECK (confidence BETWEEN 0 AND 1000),
  expire_time INTEGER NOT NULL,
  create_time INTEGER NOT NULL,
  update_time INTEGER NOT NULL,
  revision    INTEGER NOT NULL,
  principal   TEXT NOT NULL,
  PRIMARY KEY (namespace, id)
) STRICT;
CREATE UNIQUE INDEX memories_by_key ON memories (namespace, place, key);
CREATE INDEX memories_by_time ON memories (namespace, create_time, id);
CREATE INDEX memories_by_place ON memories (namespace, place, create_time, id);
-- Which entries give way where there are too many.
CREATE INDEX memories_by_worth ON memories (namespace, place, confidence, update_time, id);
CREATE INDEX memories_by_user ON memories (namespace, user_id, id) WHERE user_id <> '';
CREATE INDEX memories_by_expiry ON memories (expire_time) WHERE expire_time > 0;

-- The words by which entries are found, and how much each weighs.
CREATE TABLE memory_words (
  namespace TEXT NOT NULL,
  place     TEXT NOT NULL,
  word      TEXT NOT NULL,
  memory_id TEXT NOT NULL,
  weight    INTEGER NOT NULL,
  PRIMARY KEY (namespace, place, word, memory_id),
  FOREIGN KEY (namespace, memory_id) REFERENCES memories (namespace, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
-- For the deletion of an entry.
CREATE INDEX memory_words_by_memory ON memory_words (namespace, memory_id);

-- Who has read what. scopes and entries are lists.
CREATE TABLE memory_reads (
  namespace TEXT NOT NULL,
  id        TEXT NOT NULL,
  time      INTEGER NOT NULL,
  run_id    TEXT NOT NULL,
  node_id   TEXT NOT NULL,
  user_id   TEXT NOT NULL,
  principal TEXT NOT NULL,
  query     TEXT NOT NULL,
  scopes    TEXT NOT NULL,
  entries   TEXT NOT NULL,
  PRIMARY KEY (namespace, id)
) STRICT;
CREATE INDEX memory_reads_by_page ON memory_reads (namespace, time, id);
CREATE INDEX memory_reads_by_time ON memory_reads (time);
CREATE INDEX memory_reads_by_user ON memory_reads (namespace, user_id, id) WHERE user_id <> '';

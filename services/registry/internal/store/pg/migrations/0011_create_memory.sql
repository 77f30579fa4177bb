-- +goose Up
-- What is remembered beyond runs. place is the scope: "namespace", or "user/", "epic/" or "workflow/" with a
-- subject. kind and origin are those of the API; confidence is in thousandths.
CREATE TABLE memories (
  namespace   text COLLATE "C" NOT NULL,
  id          text COLLATE "C" NOT NULL,
  place       text COLLATE "C" NOT NULL,
  key         text COLLATE "C" NOT NULL,
  kind        smallint NOT NULL CHECK (kind BETWEEN 1 AND 3),
  text        text NOT NULL,
  value       text NOT NULL, -- JSON as it was written; empty for none
  tags        text[] NOT NULL,
  origin      smallint NOT NULL CHECK (origin BETWEEN 1 AND 4),
  source      text NOT NULL,
  user_id     text COLLATE "C" NOT NULL,
  confidence  integer NOT NULL CHECK (confidence BETWEEN 0 AND 1000),
  expire_time timestamptz,
  create_time timestamptz NOT NULL,
  update_time timestamptz NOT NULL,
  revision    bigint NOT NULL,
  principal   text NOT NULL,
  PRIMARY KEY (namespace, id)
);
CREATE UNIQUE INDEX memories_by_key ON memories (namespace, place, key);
CREATE INDEX memories_by_time ON memories (namespace, create_time, id);
CREATE INDEX memories_by_place ON memories (namespace, place, create_time, id);
-- Which entries give way where there are too many.
CREATE INDEX memories_by_worth ON memories (namespace, place, confidence, update_time, id);
CREATE INDEX memories_by_user ON memories (namespace, user_id, id) WHERE user_id <> '';
CREATE INDEX memories_by_expiry ON memories (expire_time) WHERE expire_time IS NOT NULL;

-- The words by which entries are found, and how much each weighs.
CREATE TABLE memory_words (
  namespace text COLLATE "C" NOT NULL,
  place     text COLLATE "C" NOT NULL,
  word      text COLLATE "C" NOT NULL,
  memory_id text COLLATE "C" NOT NULL,
  weight    bigint NOT NULL,
  PRIMARY KEY (namespace, place, word, memory_id),
  FOREIGN KEY (namespace, memory_id) REFERENCES memories (namespace, id) ON DELETE CASCADE
);
-- For the deletion of an entry.
CREATE INDEX memory_words_by_memory ON memory_words (namespace, memory_id);

-- Who has read what. scopes and entries are lists.
CREATE TABLE memory_reads (
  namespace text COLLATE "C" NOT NULL,
  id        text COLLATE "C" NOT NULL,
  time      timestamptz NOT NULL,
  run_id    text NOT NULL,
  node_id   text NOT NULL,
  user_id   text COLLATE "C" NOT NULL,
  principal text NOT NULL,
  query     text NOT NULL,
  scopes    text[] NOT NULL,
  entries   text[] NOT NULL,
  PRIMARY KEY (namespace, id)
);
CREATE INDEX memory_reads_by_page ON memory_reads (namespace, time, id);
CREATE INDEX memory_reads_by_time ON memory_reads (time);
CREATE INDEX memory_reads_by_user ON memory_reads (namespace, user_id, id) WHERE user_id <> '';

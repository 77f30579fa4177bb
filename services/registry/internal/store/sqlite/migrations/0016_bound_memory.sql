-- +goose Up
-- The kind of the entry that has a word: a search looks at the words of each kind apart, those that weigh most
-- first. So an old procedure is found behind many newer facts.
ALTER TABLE memory_words ADD COLUMN kind INTEGER NOT NULL DEFAULT 1;
UPDATE memory_words SET kind = (SELECT m.kind FROM memories m WHERE m.namespace = memory_words.namespace AND m.id = memory_words.memory_id)
  WHERE EXISTS (SELECT 1 FROM memories m WHERE m.namespace = memory_words.namespace AND m.id = memory_words.memory_id AND m.kind <> 1);
CREATE INDEX memory_words_by_weight ON memory_words (namespace, place, word, kind, weight, memory_id);
-- For searches without words.
CREATE INDEX memories_by_kind ON memories (namespace, place, kind, create_time, id);

-- What is kept of a namespace, which is bounded. bytes of an entry is its size as it is counted.
ALTER TABLE memories ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE memories SET bytes = 512 + CASE place WHEN 'namespace' THEN 0 ELSE octet_length(place) - instr(place, '/') END
  + octet_length(key) + octet_length(text) + octet_length(value) + octet_length(user_id) + octet_length(source)
  + (SELECT COALESCE(SUM(16 + octet_length(g.value)), 0) FROM json_each(tags) g);
CREATE TABLE memory_totals (
  namespace TEXT NOT NULL PRIMARY KEY,
  entries   INTEGER NOT NULL,
  bytes     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO memory_totals SELECT namespace, count(*), SUM(bytes) FROM memories GROUP BY namespace;

-- Expired entries are removed by namespace, so that one with many does not keep others waiting.
DROP INDEX memories_by_expiry;
CREATE INDEX memories_by_expiry ON memories (namespace, expire_time, id) WHERE expire_time > 0;

-- A procedure of a user is for that user, and was for everybody before.
UPDATE memory_words SET place = (SELECT 'user/' || m.user_id FROM memories m WHERE m.namespace = memory_words.namespace AND m.id = memory_words.memory_id)
  WHERE EXISTS (SELECT 1 FROM memories m WHERE m.namespace = memory_words.namespace AND m.id = memory_words.memory_id
    AND m.origin = 3 AND m.kind = 2 AND m.user_id <> '' AND m.place = 'namespace');
UPDATE memories SET place = 'user/' || user_id WHERE origin = 3 AND kind = 2 AND user_id <> '' AND place = 'namespace';

-- Of each read, by which call, and how many entries it told: of many only the first are named.
ALTER TABLE memory_reads ADD COLUMN method TEXT NOT NULL DEFAULT 'SearchMemory';
ALTER TABLE memory_reads ADD COLUMN told INTEGER NOT NULL DEFAULT 0;
UPDATE memory_reads SET told = json_array_length(entries);

-- Vectors of entries: 32-bit floats, little endian, of length 1. An entry has one; embedded is the model that made
-- it, empty for none, and embed_after the time before which no one else is asked to make one.
CREATE TABLE memory_vectors (
  namespace TEXT NOT NULL,
  memory_id TEXT NOT NULL,
  place     TEXT NOT NULL,
  model     TEXT NOT NULL,
  vector    BLOB NOT NULL,
  PRIMARY KEY (namespace, memory_id),
  FOREIGN KEY (namespace, memory_id) REFERENCES memories (namespace, id) ON DELETE CASCADE
) STRICT;
CREATE INDEX memory_vectors_by_place ON memory_vectors (namespace, place, model, memory_id);
ALTER TABLE memories ADD COLUMN embedded TEXT NOT NULL DEFAULT '';
ALTER TABLE memories ADD COLUMN embed_after INTEGER NOT NULL DEFAULT 0;
CREATE INDEX memories_by_embedded ON memories (embedded, embed_after);

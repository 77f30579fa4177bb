-- +goose Up
-- The kind of the entry that has a word: a search looks at the words of each kind apart, those that weigh most
-- first. So an old procedure is found behind many newer facts.
ALTER TABLE memory_words ADD COLUMN kind INTEGER NOT NULL DEFAULT 1;
UPDATE memory_words SET kind = (SELECT m.kind FROM memories m WHERE m.namespace = memory_words.namespace AND m.id = memory_words.memory_id)
  WHERE EXISTS (SELECT 1 FROM memories m WHERE m.namespace = memory_words.namespace AND m.id = memory_words.memory_id AND m.kind <> 1);
CREATE INDEX memory_words_by_weight ON memory_words (namespace, place, word, kind, weight, memory_id);
-- For searches without words.
CREATE INDEX memories_by_kind ON memories (namespace, place, kind, create_time, id);

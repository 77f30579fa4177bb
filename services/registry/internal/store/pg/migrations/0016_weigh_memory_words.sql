-- +goose Up
-- The kind of the entry that has a word: a search looks at the words of each kind apart, those that weigh most
-- first. So an old procedure is found behind many newer facts.
ALTER TABLE memory_words ADD COLUMN kind smallint NOT NULL DEFAULT 1;
UPDATE memory_words w SET kind = m.kind FROM memories m WHERE m.namespace = w.namespace AND m.id = w.memory_id AND m.kind <> 1;
CREATE INDEX memory_words_by_weight ON memory_words (namespace, place, word, kind, weight, memory_id);
-- For searches without words.
CREATE INDEX memories_by_kind ON memories (namespace, place, kind, create_time, id);

-- +goose Up
-- The words by which epics are found, those of their tasks included, and how much each weighs.
CREATE TABLE epic_words (
  namespace text COLLATE "C" NOT NULL,
  word      text COLLATE "C" NOT NULL,
  epic_id   text COLLATE "C" NOT NULL,
  weight    bigint NOT NULL,
  PRIMARY KEY (namespace, word, epic_id),
  FOREIGN KEY (namespace, epic_id) REFERENCES epics (namespace, id) ON DELETE CASCADE
);
-- For the deletion of an epic.
CREATE INDEX epic_words_by_epic ON epic_words (namespace, epic_id);
CREATE INDEX tasks_by_slug ON tasks (namespace, epic_id, (workflow_slug COLLATE "C")) WHERE workflow_slug <> '';

-- +goose Up
-- The words by which epics are found, those of their tasks included, and how much each weighs.
CREATE TABLE epic_words (
  namespace TEXT NOT NULL,
  word      TEXT NOT NULL,
  epic_id   TEXT NOT NULL,
  weight    INTEGER NOT NULL,
  PRIMARY KEY (namespace, word, epic_id),
  FOREIGN KEY (namespace, epic_id) REFERENCES epics (namespace, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
-- For the deletion of an epic.
CREATE INDEX epic_words_by_epic ON epic_words (namespace, epic_id);
CREATE INDEX tasks_by_slug ON tasks (namespace, epic_id, workflow_slug) WHERE workflow_slug <> '';

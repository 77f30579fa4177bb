-- +goose Up

-- The thread of which this one is a part, such as that of a team, of which a member's is one: it is kept as
-- long as that one, and deleted with it.
ALTER TABLE threads ADD COLUMN part_of TEXT NOT NULL DEFAULT '';
CREATE INDEX threads_by_whole ON threads (part_of) WHERE part_of <> '';

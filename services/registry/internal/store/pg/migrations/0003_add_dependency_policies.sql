-- +goose Up
-- 1 block, 2 skip, 3 fail; 0 of a task is the policy of its epic.
ALTER TABLE epics ADD COLUMN dependency_policy smallint NOT NULL DEFAULT 1 CHECK (dependency_policy BETWEEN 1 AND 3);
ALTER TABLE tasks ADD COLUMN dependency_policy smallint NOT NULL DEFAULT 0 CHECK (dependency_policy BETWEEN 0 AND 3);
-- The task whose end ended this one by its policy.
ALTER TABLE tasks ADD COLUMN ended_by text COLLATE "C" NOT NULL DEFAULT '';

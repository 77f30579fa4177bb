-- +goose Up
-- When a run last took a graph, give or take an hour: what nobody took for days and no run refers to is removed.
ALTER TABLE graphs ADD COLUMN use_time INTEGER NOT NULL DEFAULT 0;
UPDATE graphs SET use_time = CAST(unixepoch('subsec') * 1000000 AS INTEGER);
-- The graph that a run began with, once it is pinned to another; empty for runs that changed before this was kept.
ALTER TABLE runs ADD COLUMN first_graph TEXT NOT NULL DEFAULT '';

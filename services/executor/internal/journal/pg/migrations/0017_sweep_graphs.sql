-- +goose Up
-- When a run last took a graph, give or take an hour: what nobody took for days and no run refers to is removed. Those that are there count as just taken, so
-- that executors of the release before, which do not say so, have a day to go.
ALTER TABLE graphs ADD COLUMN use_time timestamptz NOT NULL DEFAULT now();
-- The graph that a run began with, once it is pinned to another; empty for runs that changed before this was kept.
ALTER TABLE runs ADD COLUMN first_graph text COLLATE "C" NOT NULL DEFAULT '';

-- +goose Up

-- What agents have learned is in the memory of the registry: the outbox has carried it there, too. Nothing
-- reads this table any more. It is emptied, so that nothing about users stays where nobody can remove it,
-- and not dropped: executors of the version before write to it while a rollout is under way.
DELETE FROM facts;

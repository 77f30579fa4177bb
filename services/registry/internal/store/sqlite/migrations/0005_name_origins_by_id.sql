-- +goose Up
-- A slug is free again some time after its workflow was deleted, so forks name what they are of by its id: ID@VERSION.

UPDATE workflows
SET forked_from = COALESCE((
  SELECT b.id || substr(workflows.forked_from, instr(workflows.forked_from, '@'))
  FROM workflows b
  WHERE b.namespace = workflows.namespace AND b.create_time <= workflows.create_time
    AND b.slug = substr(workflows.forked_from, 1, instr(workflows.forked_from, '@') - 1)
), forked_from)
WHERE forked_from <> '';

-- +goose Up
-- What the account of a run has spent beyond the entries of the run itself. It is null where it is not
-- known: in accounts of other levels, and in those that were opened before.
ALTER TABLE accounts ADD COLUMN beyond_tokens bigint;
ALTER TABLE accounts ADD COLUMN beyond_nano_usd bigint;

-- The root of the run that made an epic, and the principal that started the run or made the epic itself. So
-- far a label of the epic has named the root.
ALTER TABLE epics ADD COLUMN maker_root text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE epics ADD COLUMN maker_principal text COLLATE "C" NOT NULL DEFAULT '';
UPDATE epics SET maker_root = coalesce(substr(labels ->> 'created_by_root', 1, 64), '') WHERE labels ? 'created_by_root';

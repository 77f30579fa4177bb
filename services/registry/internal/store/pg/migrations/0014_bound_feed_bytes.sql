-- +goose Up
-- The size of the bodies of the events that are kept of a namespace.
ALTER TABLE feeds ADD COLUMN bytes bigint NOT NULL DEFAULT 0;
UPDATE feeds SET bytes = (SELECT COALESCE(SUM(octet_length(e.body)), 0) FROM feed e WHERE e.namespace = feeds.namespace);

-- A booking of a thousand calls is an event of some hundred KiB, and pglz took most of the time in which it was
-- written. Servers without lz4 keep pglz.
-- +goose StatementBegin
DO $$
BEGIN
  ALTER TABLE feed ALTER COLUMN body SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported OR syntax_error THEN
  NULL;
END
$$;
-- +goose StatementEnd

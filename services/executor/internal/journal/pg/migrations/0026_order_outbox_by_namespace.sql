-- +goose NO TRANSACTION
-- +goose Up
-- What has to leave the executor by namespace, in the order in which it is due: claims take from each in turn.
-- Each statement may have been carried out before.
DROP INDEX CONCURRENTLY IF EXISTS outbox_by_namespace;
CREATE INDEX CONCURRENTLY outbox_by_namespace ON outbox (namespace, next_at, id);
DROP INDEX CONCURRENTLY IF EXISTS outbox_due;

-- +goose Up
-- What has to leave the executor by namespace, in the order in which it is due: claims take from each in turn.
CREATE INDEX outbox_by_namespace ON outbox (namespace, next_at);
DROP INDEX outbox_due;

-- +goose NO TRANSACTION
-- +goose Up
-- Runs to cancel of a database by namespace, in the order in which they are due: leases take from each in turn.
-- Each statement may have been carried out before.
DROP INDEX CONCURRENTLY IF EXISTS cancellations_by_namespace;
CREATE INDEX CONCURRENTLY cancellations_by_namespace ON cancellations (database_id, namespace, lease_until);
DROP INDEX CONCURRENTLY IF EXISTS cancellations_by_lease;

-- +goose Up
-- Runs to cancel of a database by namespace, in the order in which they are due: leases take from each in turn.
CREATE INDEX cancellations_by_namespace ON cancellations (database_id, namespace, lease_until);
DROP INDEX cancellations_by_lease;

-- +goose Up
-- The audit log: one row a call that changed something, or was refused. Rows are added and, when they are older
-- than the retention, removed; the trigger refuses every change.
CREATE TABLE audit (
  namespace  TEXT NOT NULL,
  id         TEXT NOT NULL,
  time       INTEGER NOT NULL,
  principal  TEXT NOT NULL,
  method     TEXT NOT NULL,
  resource   TEXT NOT NULL,
  run_id     TEXT NOT NULL,
  request_id TEXT NOT NULL,
  code       TEXT NOT NULL,
  reason     TEXT NOT NULL,
  remote     TEXT NOT NULL,
  user_agent TEXT NOT NULL,
  left_out   INTEGER NOT NULL,
  PRIMARY KEY (namespace, id)
) STRICT;
CREATE INDEX audit_by_time ON audit (namespace, time, id);
CREATE INDEX audit_by_principal ON audit (namespace, principal, time, id);
CREATE INDEX audit_by_method ON audit (namespace, method, time, id);
CREATE INDEX audit_by_resource ON audit (namespace, resource, time, id) WHERE resource <> '';
-- +goose StatementBegin
CREATE TRIGGER audit_is_append_only BEFORE UPDATE ON audit
BEGIN
  SELECT RAISE(ABORT, 'the audit log is append-only');
END;
-- +goose StatementEnd

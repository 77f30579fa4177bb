-- +goose Up
-- The audit log: one row a call that changed something, or was refused. Rows are added and, when they are older
-- than the retention, removed; the trigger refuses every change.
CREATE TABLE audit (
  namespace  text COLLATE "C" NOT NULL,
  id         text COLLATE "C" NOT NULL,
  time       timestamptz NOT NULL,
  principal  text COLLATE "C" NOT NULL,
  method     text COLLATE "C" NOT NULL,
  resource   text COLLATE "C" NOT NULL,
  run_id     text NOT NULL,
  request_id text NOT NULL,
  code       text NOT NULL,
  reason     text NOT NULL,
  remote     text NOT NULL,
  user_agent text NOT NULL,
  left_out   bigint NOT NULL,
  PRIMARY KEY (namespace, id)
);
CREATE INDEX audit_by_time ON audit (namespace, time, id);
CREATE INDEX audit_by_principal ON audit (namespace, principal, time, id);
CREATE INDEX audit_by_method ON audit (namespace, method, time, id);
CREATE INDEX audit_by_resource ON audit (namespace, resource, time, id) WHERE resource <> '';
-- +goose StatementBegin
CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the audit log is append-only';
END
$$;
-- +goose StatementEnd
CREATE TRIGGER audit_is_append_only BEFORE UPDATE ON audit FOR EACH ROW EXECUTE FUNCTION audit_is_append_only();

-- +goose Up
-- Epics that a cap of their namespace has stopped: they are looked for until there is room for them.
CREATE INDEX epics_capped ON epics (namespace, id) WHERE pause_reason = 'NAMESPACE_CAP_REACHED';

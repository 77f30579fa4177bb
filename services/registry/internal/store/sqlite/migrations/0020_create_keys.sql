-- +goose Up
-- API keys that were made by the API. hash is the SHA-256 of the secret, which is 256 random bits: nobody can try
-- enough of them, so a slow hash would protect nothing.
CREATE TABLE api_keys (
  namespace     TEXT NOT NULL,
  id            TEXT NOT NULL,
  name          TEXT NOT NULL,
  scopes        TEXT NOT NULL,
  hash          BLOB NOT NULL,
  principal     TEXT NOT NULL,
  create_time   INTEGER NOT NULL,
  expire_time   INTEGER NOT NULL,
  revoke_time   INTEGER NOT NULL,
  revoked_by    TEXT NOT NULL,
  last_use_time INTEGER NOT NULL,
  PRIMARY KEY (namespace, id)
) STRICT;
CREATE INDEX api_keys_by_time ON api_keys (namespace, create_time, id);
CREATE INDEX api_keys_by_expiry ON api_keys (expire_time) WHERE expire_time > 0;
CREATE INDEX api_keys_by_revocation ON api_keys (revoke_time) WHERE revoke_time > 0;

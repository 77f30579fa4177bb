-- +goose Up
-- API keys that were made by the API. hash is the SHA-256 of the secret, which is 256 random bits: nobody can try
-- enough of them, so a slow hash would protect nothing.
CREATE TABLE api_keys (
  namespace     text COLLATE "C" NOT NULL,
  id            text COLLATE "C" NOT NULL,
  name          text NOT NULL,
  scopes        text[] NOT NULL,
  hash          bytea NOT NULL,
  principal     text NOT NULL,
  create_time   timestamptz NOT NULL,
  expire_time   timestamptz,
  revoke_time   timestamptz,
  revoked_by    text NOT NULL,
  last_use_time timestamptz,
  PRIMARY KEY (namespace, id)
);
CREATE INDEX api_keys_by_time ON api_keys (namespace, create_time, id);
CREATE INDEX api_keys_by_expiry ON api_keys (expire_time) WHERE expire_time IS NOT NULL;
CREATE INDEX api_keys_by_revocation ON api_keys (revoke_time) WHERE revoke_time IS NOT NULL;

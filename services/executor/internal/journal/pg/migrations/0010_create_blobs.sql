-- +goose Up
-- Values that are kept outside of the database. Each has its row before it is stored.
CREATE TABLE blobs (
    namespace  text COLLATE "C" NOT NULL,
    hash       bytea NOT NULL,
    size       bigint NOT NULL,
    touch_time timestamptz NOT NULL DEFAULT now(),
    doom_time  timestamptz,
    PRIMARY KEY (namespace, hash)
);
CREATE INDEX blobs_by_touch ON blobs (touch_time);

-- Which runs refer to them. What a commit refers to must have a row.
CREATE TABLE blob_refs (
    run_id    text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    hash      bytea NOT NULL,
    snapshot  boolean NOT NULL,
    PRIMARY KEY (run_id, hash, snapshot),
    FOREIGN KEY (namespace, hash) REFERENCES blobs (namespace, hash)
);
CREATE INDEX blob_refs_by_hash ON blob_refs (namespace, hash);
CREATE INDEX blob_refs_of_snapshots ON blob_refs (run_id) WHERE snapshot;

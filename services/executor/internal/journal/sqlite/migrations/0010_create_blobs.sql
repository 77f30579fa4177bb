-- +goose Up
-- Values that are kept outside of the database. Each has its row before it is stored.
CREATE TABLE blobs (
    namespace  TEXT NOT NULL,
    hash       BLOB NOT NULL,
    size       INTEGER NOT NULL,
    touch_time INTEGER NOT NULL,
    doom_time  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (namespace, hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX blobs_by_touch ON blobs (touch_time);

-- Which runs refer to them. What a commit refers to must have a row.
CREATE TABLE blob_refs (
    run_id    TEXT NOT NULL,
    namespace TEXT NOT NULL,
    hash      BLOB NOT NULL,
    snapshot  INTEGER NOT NULL,
    PRIMARY KEY (run_id, hash, snapshot),
    FOREIGN KEY (namespace, hash) REFERENCES blobs (namespace, hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_refs_by_hash ON blob_refs (namespace, hash);
CREATE INDEX blob_refs_of_snapshots ON blob_refs (run_id) WHERE snapshot = 1;

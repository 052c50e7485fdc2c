-- The tables of one SQLite shard of the follow store. Every record stands on the shard of the id it is looked up by.
-- Kinds of followees: 0 is a board, 1 is a user (the order that followees sort in). Times are ms since 1970.

-- Which shard this is, the latest time it ever stamped or settled, and the id of the next outbox row.
CREATE TABLE shard_state (
    only           INTEGER PRIMARY KEY CHECK (only = 1),
    shard          INTEGER NOT NULL,
    shards         INTEGER NOT NULL,
    latest_ms      INTEGER NOT NULL,
    next_outbox_id INTEGER NOT NULL
);

-- By follower. The clock is the largest timestamp that any edge of the follower ever got.
CREATE TABLE clocks (
    follower INTEGER PRIMARY KEY,
    last_ts  INTEGER NOT NULL
);

CREATE TABLE edges (
    follower     INTEGER NOT NULL,
    kind         INTEGER NOT NULL,
    followee     INTEGER NOT NULL,
    ts           INTEGER NOT NULL,
    active       INTEGER NOT NULL,
    committed_ms INTEGER NOT NULL,
    PRIMARY KEY (follower, kind, followee)
) WITHOUT ROWID;

-- By followee: who follows it. Tombstones stand until nothing in flight can need them.
CREATE TABLE followers (
    kind     INTEGER NOT NULL,
    followee INTEGER NOT NULL,
    follower INTEGER NOT NULL,
    ts       INTEGER NOT NULL,
    active   INTEGER NOT NULL,
    PRIMARY KEY (kind, followee, follower)
) WITHOUT ROWID;
CREATE INDEX followers_tombstones ON followers (ts) WHERE active = 0;

CREATE TABLE boards (
    board INTEGER PRIMARY KEY,
    owner INTEGER NOT NULL
);

CREATE TABLE pins (
    pin        INTEGER PRIMARY KEY,
    owner      INTEGER NOT NULL,
    board      INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    saved_ms   INTEGER NOT NULL,
    deleted_ms INTEGER
);

-- By owner and by board: their pins, in feed order. A pin whose deletion came first has saved_ms 0.
CREATE TABLE pin_index (
    kind       INTEGER NOT NULL,
    followee   INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    pin        INTEGER NOT NULL,
    owner      INTEGER NOT NULL,
    board      INTEGER NOT NULL,
    saved_ms   INTEGER NOT NULL,
    deleted_ms INTEGER,
    PRIMARY KEY (kind, followee, created_ms DESC, pin)
) WITHOUT ROWID;
CREATE INDEX pin_index_saved ON pin_index (kind, followee, saved_ms, pin);
CREATE INDEX pin_index_deleted ON pin_index (deleted_ms) WHERE deleted_ms IS NOT NULL;

-- Recorded actions, in the order of their commits; the ids of those that are not relayed yet stand apart, so that
-- marking a row does not write its body again.
CREATE TABLE outbox (
    id           INTEGER PRIMARY KEY,
    committed_ms INTEGER NOT NULL,
    body         BLOB NOT NULL
);
CREATE TABLE outbox_unrelayed (
    id INTEGER PRIMARY KEY
);

-- By idempotency key (its claim; the answer is null), and by the action's own id (the answer).
CREATE TABLE keys (
    key          TEXT PRIMARY KEY,
    fingerprint  BLOB NOT NULL,
    answer       BLOB,
    committed_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX keys_committed ON keys (committed_ms);

-- By user: when a refill was last asked for; the cluster is '' where it was asked for all.
CREATE TABLE refills (
    user     INTEGER NOT NULL,
    cluster  TEXT NOT NULL,
    asked_ms INTEGER NOT NULL,
    PRIMARY KEY (user, cluster)
) WITHOUT ROWID;
CREATE INDEX refills_asked ON refills (asked_ms);

-- The tables of one MySQL shard of the follow store, in SQL that MySQL 8 and MariaDB 10.11 take alike. Every record
-- stands on the shard of the id it is looked up by.
-- Kinds of followees: 0 is a board, 1 is a user (the order that followees sort in). Times are ms since 1970.
-- A statement may run again after a migration that was cut off: DDL commits by itself here.

-- The migrations that were applied.
CREATE TABLE IF NOT EXISTS schema_versions (
    version    INT NOT NULL PRIMARY KEY,
    applied_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
) ENGINE = InnoDB;

-- Which shard this is, and the latest time that it settled: nothing commits before it. Every transaction that stamps a
-- time holds this row shared until it is committed; whoever settles takes it alone.
CREATE TABLE IF NOT EXISTS shard_state (
    only_row  TINYINT NOT NULL PRIMARY KEY CHECK (only_row = 1),
    shard     INT NOT NULL,
    shards    INT NOT NULL,
    latest_ms BIGINT NOT NULL
) ENGINE = InnoDB;

-- By follower. The clock is the largest timestamp that any edge of the follower ever got; committed_ms is when.
CREATE TABLE IF NOT EXISTS clocks (
    follower     BIGINT NOT NULL PRIMARY KEY,
    last_ts      BIGINT NOT NULL,
    committed_ms BIGINT NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS edges (
    follower     BIGINT NOT NULL,
    kind         TINYINT NOT NULL,
    followee     BIGINT NOT NULL,
    ts           BIGINT NOT NULL,
    active       TINYINT NOT NULL,
    committed_ms BIGINT NOT NULL,
    PRIMARY KEY (follower, kind, followee)
) ENGINE = InnoDB;

-- By followee: who follows it. Tombstones stand until nothing in flight can need them.
CREATE TABLE IF NOT EXISTS followers (
    kind     TINYINT NOT NULL,
    followee BIGINT NOT NULL,
    follower BIGINT NOT NULL,
    ts       BIGINT NOT NULL,
    active   TINYINT NOT NULL,
    PRIMARY KEY (kind, followee, follower)
) ENGINE = InnoDB;

-- The tombstones by time, for their expiry. Not an index of followers: that would hold every active edge too.
CREATE TABLE IF NOT EXISTS follower_tombstones (
    ts       BIGINT NOT NULL,
    kind     TINYINT NOT NULL,
    followee BIGINT NOT NULL,
    follower BIGINT NOT NULL,
    PRIMARY KEY (ts, kind, followee, follower)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS boards (
    board BIGINT NOT NULL PRIMARY KEY,
    owner BIGINT NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS pins (
    pin        BIGINT NOT NULL PRIMARY KEY,
    owner      BIGINT NOT NULL,
    board      BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    saved_ms   BIGINT NOT NULL,
    deleted_ms BIGINT NULL
) ENGINE = InnoDB;

-- By owner and by board: their pins, in feed order. A pin whose deletion came first has saved_ms 0.
CREATE TABLE IF NOT EXISTS pin_index (
    kind       TINYINT NOT NULL,
    followee   BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    pin        BIGINT NOT NULL,
    owner      BIGINT NOT NULL,
    board      BIGINT NOT NULL,
    saved_ms   BIGINT NOT NULL,
    deleted_ms BIGINT NULL,
    PRIMARY KEY (kind, followee, created_ms DESC, pin),
    KEY pin_index_saved (kind, followee, saved_ms, pin)
) ENGINE = InnoDB;

-- The marked lines of the pin index by time, for their expiry.
CREATE TABLE IF NOT EXISTS pin_index_deleted (
    deleted_ms BIGINT NOT NULL,
    kind       TINYINT NOT NULL,
    followee   BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    pin        BIGINT NOT NULL,
    PRIMARY KEY (deleted_ms, kind, followee, created_ms, pin)
) ENGINE = InnoDB;

-- Recorded actions. Ids may commit out of order: which rows are not relayed yet stands apart, row by row, and not in a
-- cursor that late commits could fall behind.
CREATE TABLE IF NOT EXISTS outbox (
    id           BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    committed_ms BIGINT NOT NULL,
    body         VARBINARY(4096) NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS outbox_unrelayed (
    id           BIGINT NOT NULL PRIMARY KEY,
    committed_ms BIGINT NOT NULL,
    KEY outbox_unrelayed_committed (committed_ms)
) ENGINE = InnoDB;

-- By idempotency key (its claim; the answer is null), and by the action's own id (the answer). Bytes of UTF-8:
-- collations would take some different keys for the same.
CREATE TABLE IF NOT EXISTS request_keys (
    request_key  VARBINARY(512) NOT NULL PRIMARY KEY,
    fingerprint  VARBINARY(64) NOT NULL,
    answer       VARBINARY(4096) NULL,
    committed_ms BIGINT NOT NULL,
    KEY request_keys_committed (committed_ms)
) ENGINE = InnoDB;

-- By user: when a refill was last asked for; the cluster is '' where it was asked for all.
CREATE TABLE IF NOT EXISTS refills (
    user_id      BIGINT NOT NULL,
    cluster_name VARBINARY(64) NOT NULL,
    asked_ms     BIGINT NOT NULL,
    PRIMARY KEY (user_id, cluster_name),
    KEY refills_asked (asked_ms)
) ENGINE = InnoDB;

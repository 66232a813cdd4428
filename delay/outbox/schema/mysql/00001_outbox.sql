-- MySQL 8.0.13 or later, MariaDB 10.6 or later. "app.delay_outbox" stands for the configured table.
-- No transaction covers these statements, so each may be repeated.

-- +goose Up

-- One row a message (op = 0) and one a cancel or reschedule. A producer in any
-- language needs to give queue, message_id, topic, body and due_ms only.
CREATE TABLE IF NOT EXISTS app.delay_outbox (
    -- The revision: a later operation has a higher one.
    id          BIGINT NOT NULL AUTO_INCREMENT,
    queue       VARBINARY(63) NOT NULL,
    message_key VARBINARY(255) NOT NULL DEFAULT '',
    message_id  VARBINARY(255) NOT NULL,
    -- 0 schedule, 1 cancel, 2 reschedule.
    op          SMALLINT NOT NULL DEFAULT 0,
    -- 0 pending, 1 stored, 2 published, 3 cancelled, 4 too late, 5 unknown, 6 refused, 7 superseded.
    status      SMALLINT NOT NULL DEFAULT 0,
    -- Whether somebody but the relay may have written it to Redis.
    tried       BOOLEAN NOT NULL DEFAULT FALSE,
    -- 16 bytes that begin with "~", never used twice: under it Redis knows the message.
    token       VARBINARY(16) NOT NULL DEFAULT (CONCAT('~', LEFT(SHA2(CONCAT(UUID(), RAND(), RAND()), 256), 15))),
    -- Of a cancel or reschedule: the id of the message's row, where there was one.
    target      BIGINT,
    -- Of a message: the id of the last reschedule that was applied.
    revision    BIGINT NOT NULL DEFAULT 0,
    -- The due time in milliseconds since 1970, UTC; 0 of a cancel.
    due_ms      BIGINT NOT NULL,
    -- When the relay takes the row: operations are always urgent.
    load_ms     BIGINT GENERATED ALWAYS AS (CASE WHEN op = 0 THEN due_ms ELSE 0 END) STORED,
    topic       VARBINARY(1024) NOT NULL DEFAULT '',
    -- An object of strings.
    headers     JSON,
    body        LONGBLOB NOT NULL DEFAULT (''),
    created_ms  BIGINT NOT NULL DEFAULT (TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) DIV 1000),
    finished_ms BIGINT,
    -- Why it was refused.
    reason      VARCHAR(1000) NOT NULL DEFAULT '',
    -- 1 while the row holds its identity.
    live        TINYINT GENERATED ALWAYS AS (CASE WHEN op = 0 AND status IN (0, 1) THEN 1 END) STORED,
    PRIMARY KEY (id),
    -- What the relay looks for.
    KEY delay_outbox_pending (status, load_ms, id),
    -- One live message an identity. What Schedule reports as a duplicate is decided
    -- here; nobody else may lock this index, or Schedule waits.
    UNIQUE KEY delay_outbox_live (queue, message_key, message_id, live),
    -- The rows of an identity.
    KEY delay_outbox_history (queue, message_key, message_id, id),
    -- What is deleted after a while.
    KEY delay_outbox_finished (finished_ms)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC;

-- In which life of a queue in Redis its rows were stored.
CREATE TABLE IF NOT EXISTS app.delay_outbox_queues (
    queue         VARBINARY(63) NOT NULL,
    life          VARBINARY(255) NOT NULL DEFAULT '',
    reconciled_ms BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (queue)
) ENGINE = InnoDB;

-- The relays that run, and those that died without a word.
CREATE TABLE IF NOT EXISTS app.delay_outbox_relays (
    instance VARBINARY(255) NOT NULL,
    seen_ms  BIGINT NOT NULL,
    PRIMARY KEY (instance)
) ENGINE = InnoDB;

-- +goose Down

DROP TABLE IF EXISTS app.delay_outbox_relays;
DROP TABLE IF EXISTS app.delay_outbox_queues;
DROP TABLE IF EXISTS app.delay_outbox;

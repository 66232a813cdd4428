-- Rows are found by queue, so that those of one queue cost another nothing, whether they are pending or
-- stored. One statement changes the table, so that it is done or not; producers go on writing meanwhile.
-- Bridges of the version before must have stopped. Producers of it may go on: the column tried is theirs.

-- +goose Up

ALTER TABLE app.delay_outbox
    -- Whether a copy of the message may be out: it outlives a reschedule.
    ADD COLUMN maybe BOOLEAN NOT NULL DEFAULT FALSE,
    DROP KEY delay_outbox_pending,
    -- What the relay looks for, and what the auditor compares with Redis.
    ADD KEY delay_outbox_due (queue, status, load_ms, id);

DROP TABLE IF EXISTS app.delay_outbox_queues;
DROP TABLE IF EXISTS app.delay_outbox_relays;

-- +goose Down

CREATE TABLE IF NOT EXISTS app.delay_outbox_relays (
    instance VARBINARY(255) NOT NULL,
    seen_ms  BIGINT NOT NULL,
    PRIMARY KEY (instance)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS app.delay_outbox_queues (
    queue         VARBINARY(63) NOT NULL,
    life          VARBINARY(255) NOT NULL DEFAULT '',
    reconciled_ms BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (queue)
) ENGINE = InnoDB;

ALTER TABLE app.delay_outbox
    DROP COLUMN maybe,
    DROP KEY delay_outbox_due,
    ADD KEY delay_outbox_pending (status, load_ms, id);

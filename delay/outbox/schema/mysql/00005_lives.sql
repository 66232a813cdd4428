-- A table knows in which Redis the messages of its rows are: two bridges with two of them would each put
-- back what the other one has, and every message would come twice. Bridges and producers of the version
-- before go on beside it, and know nothing of it; bridges of this one need the table.

-- +goose Up

CREATE TABLE IF NOT EXISTS app.delay_outbox_lives (
    queue   VARBINARY(63) NOT NULL,
    -- Which making of the queue in Redis: another one where Redis was emptied, or is another.
    life    VARBINARY(255) NOT NULL,
    -- When a bridge with that Redis was there last.
    seen_ms BIGINT NOT NULL,
    PRIMARY KEY (queue)
) ENGINE = InnoDB;

-- +goose Down

DROP TABLE IF EXISTS app.delay_outbox_lives;

-- Rows are found by queue, so that those of one queue cost another nothing; and stored rows by due time,
-- for the auditor. Indexes are made while producers go on writing, so no transaction covers these
-- statements: each may be repeated, also where it was broken off.
-- Bridges of the version before must have stopped. Producers of it may go on: the column tried is theirs.

-- +goose NO TRANSACTION

-- +goose Up

-- Whether a copy of the message may be out: it outlives a reschedule.
ALTER TABLE app.delay_outbox ADD COLUMN IF NOT EXISTS maybe boolean NOT NULL DEFAULT false;
DROP INDEX CONCURRENTLY IF EXISTS app.delay_outbox_due;
-- What the relay looks for.
CREATE INDEX CONCURRENTLY delay_outbox_due ON app.delay_outbox (queue, load_ms, id) WHERE status = 0;
DROP INDEX CONCURRENTLY IF EXISTS app.delay_outbox_stored;
-- What the auditor compares with Redis.
CREATE INDEX CONCURRENTLY delay_outbox_stored ON app.delay_outbox (queue, due_ms, id) WHERE op = 0 AND status = 1;
DROP INDEX CONCURRENTLY IF EXISTS app.delay_outbox_pending;
DROP TABLE IF EXISTS app.delay_outbox_queues;
DROP TABLE IF EXISTS app.delay_outbox_relays;

-- +goose Down

CREATE TABLE IF NOT EXISTS app.delay_outbox_relays (
    instance text COLLATE "C" PRIMARY KEY,
    seen_ms  bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS app.delay_outbox_queues (
    queue         text COLLATE "C" PRIMARY KEY,
    life          text NOT NULL DEFAULT '',
    reconciled_ms bigint NOT NULL DEFAULT 0
);
DROP INDEX CONCURRENTLY IF EXISTS app.delay_outbox_pending;
CREATE INDEX CONCURRENTLY delay_outbox_pending ON app.delay_outbox (load_ms, id) WHERE status = 0;
DROP INDEX CONCURRENTLY IF EXISTS app.delay_outbox_stored;
DROP INDEX CONCURRENTLY IF EXISTS app.delay_outbox_due;
ALTER TABLE app.delay_outbox DROP COLUMN IF EXISTS maybe;

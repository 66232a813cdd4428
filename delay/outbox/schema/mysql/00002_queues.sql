-- Rows are found by queue, so that those of one queue cost another nothing, whether they are pending or
-- stored. One statement, so that it is done or not; producers go on writing meanwhile.
-- The column tried and the tables delay_outbox_queues and delay_outbox_relays serve a bridge of the release
-- before that still runs; a later migration drops them.

-- +goose Up

ALTER TABLE delay_outbox
    -- Whether a copy of the message may be out: it outlives a reschedule.
    ADD COLUMN maybe BOOLEAN NOT NULL DEFAULT FALSE,
    DROP KEY delay_outbox_pending,
    -- What the relay looks for, and what the auditor compares with Redis.
    ADD KEY delay_outbox_due (queue, status, load_ms, id);

-- +goose Down

ALTER TABLE delay_outbox
    DROP COLUMN maybe,
    DROP KEY delay_outbox_due,
    ADD KEY delay_outbox_pending (status, load_ms, id);

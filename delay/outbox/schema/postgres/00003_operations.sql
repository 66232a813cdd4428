-- The pending operations on a message are found by an index of their own, so that those that have ended
-- cost nothing, however many there were. The index is made while producers go on writing, so no
-- transaction covers these statements: each may be repeated, also where it was broken off.
-- Bridges and producers of the version before may go on; those of this one need the index.

-- +goose NO TRANSACTION

-- +goose Up

DROP INDEX CONCURRENTLY IF EXISTS app.delay_outbox_operations;
-- The pending operations of an identity. Its condition, op > 0 and status = 0, is worded as no other query has
-- it, and as no other index: whatever the statistics say, what asks in these words goes by this index alone.
CREATE INDEX CONCURRENTLY delay_outbox_operations ON app.delay_outbox (queue, message_key, message_id, id) WHERE op * 1 > 0 AND status * 1 = 0;

-- +goose Down

DROP INDEX CONCURRENTLY IF EXISTS app.delay_outbox_operations;

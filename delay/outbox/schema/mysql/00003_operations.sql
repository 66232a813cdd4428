-- What is open of an identity, its live message and its pending operations, is found by an index of its own,
-- so that what has ended costs nothing and is not locked, however much there was. One statement changes the
-- table, so that it is done or not; producers go on writing meanwhile.
-- Bridges and producers of the version before may go on; bridges of this one need the index.

-- +goose Up

ALTER TABLE app.delay_outbox
    -- A row is open while finished_ms is NULL. Storing a message does not change its entry.
    ADD KEY delay_outbox_open (queue, message_key, message_id, finished_ms);

-- +goose Down

ALTER TABLE app.delay_outbox
    DROP KEY delay_outbox_open;

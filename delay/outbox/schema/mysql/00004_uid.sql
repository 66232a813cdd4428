-- What a message's row remembers when a reschedule takes its token: the name under which consumers
-- know the message. Bridges and producers of the version before go on beside it: they know nothing of
-- it, and a row that such a bridge reschedules gets its new token for a name.

-- +goose Up

ALTER TABLE app.delay_outbox
    -- The first token of the row, where it has another one now; empty: the token.
    ADD COLUMN uid VARBINARY(16) NOT NULL DEFAULT '';

-- +goose Down

ALTER TABLE app.delay_outbox
    DROP COLUMN uid;

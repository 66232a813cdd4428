CREATE TABLE IF NOT EXISTS delay_inbox (
    consumer text        NOT NULL COLLATE "C",
    uid      text        NOT NULL COLLATE "C",
    noted_at timestamptz NOT NULL,
    PRIMARY KEY (consumer, uid)
);
CREATE INDEX IF NOT EXISTS delay_inbox_noted_at ON delay_inbox (noted_at);

CREATE TABLE IF NOT EXISTS delay_inbox (
    consumer VARBINARY(64)  NOT NULL,
    uid      VARBINARY(300) NOT NULL,
    noted_at DATETIME       NOT NULL,
    PRIMARY KEY (consumer, uid),
    KEY delay_inbox_noted_at (noted_at)
) ENGINE = InnoDB;

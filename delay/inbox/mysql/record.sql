INSERT IGNORE INTO delay_inbox (consumer, uid, noted_at) VALUES (?, ?, UTC_TIMESTAMP())

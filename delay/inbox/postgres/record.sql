INSERT INTO delay_inbox (consumer, uid, noted_at) VALUES ($1, $2, now()) ON CONFLICT DO NOTHING

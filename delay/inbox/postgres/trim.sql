DELETE FROM delay_inbox WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM delay_inbox WHERE noted_at < now() - $1 * interval '1 second'
    ORDER BY noted_at LIMIT $2 FOR UPDATE SKIP LOCKED))

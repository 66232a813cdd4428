-- leave: forget an instance that ends, and tell the others.
-- KEYS 1 instances (ZSET instance -> last heartbeat_ms), also the channel that announces changes
-- ARGV 1 instance
-- RETURNS 1 if it was known, else 0
-- COST O(log n). CLOCK none. The only write is one that a full Redis allows.
local known = redis.call('ZREM', KEYS[1], ARGV[1])
redis.pcall(redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH', KEYS[1], 'left')
return known

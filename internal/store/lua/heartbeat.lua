-- heartbeat: say that an instance lives, and forget those that have not for a while.
-- KEYS 1 instances (ZSET instance -> last heartbeat_ms)
-- ARGV 1 instance  2 keep_ms: how long a silent instance is remembered
-- RETURNS how many instances are known
-- COST O(log n). CLOCK Redis. The first write is one that a full Redis allows.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now_ms - ARGV[2])
redis.call('ZADD', KEYS[1], now_ms, ARGV[1])
return redis.call('ZCARD', KEYS[1])

-- heartbeat: record that an instance lives, and return the last heartbeat of each, and what is paused.
-- KEYS 1 instances (ZSET instance -> last heartbeat_ms), also the channel that announces changes
--      2 paused (HASH topic -> since_ms)
-- ARGV 1 instance  2 forget_after_ms: older entries are removed, and so are those that are as far ahead of the
--      clock, because it was set back
-- RETURNS {{instance, last heartbeat_ms}*, {topic, since_ms}*}, this instance among them
-- COST O(n + log n). CLOCK Redis. The first write is one that a full Redis allows.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local known = redis.call('ZSCORE', KEYS[1], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now_ms - ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], now_ms + ARGV[2], '+inf')
redis.call('ZADD', KEYS[1], now_ms, ARGV[1])
if not known then redis.pcall(redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH', KEYS[1], 'joined') end
return {redis.call('ZRANGE', KEYS[1], '0', '-1', 'WITHSCORES'), redis.call('HGETALL', KEYS[2])}

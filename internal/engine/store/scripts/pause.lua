-- pause: stop a queue or one topic of it, or let it go on.
-- KEYS 1 paused (HASH topic -> since_ms; the empty topic is the whole queue)
--      2 instances (ZSET), also the channel that tells of changes
-- ARGV 1 topic  2 pause (1: stop; 0: go on)  3 paused_max
-- RETURNS {since_ms before, since_ms now}: -1 is not paused; {-1, -1} to a stop is one too many
-- COST O(1). CLOCK Redis. The first write is one that a full Redis allows.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local before = (redis.call('HGET', KEYS[1], ARGV[1]) or -1) + 0
local wanted = ARGV[2] == '1'
if wanted == (before >= 0) then return {before, before} end
if wanted and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then return {-1, -1} end
redis.call('ZREM', KEYS[2], '')
if wanted then redis.call('HSET', KEYS[1], ARGV[1], string.format('%d', now_ms)) else redis.call('HDEL', KEYS[1], ARGV[1]) end
redis.pcall(redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH', KEYS[2], 'paused')
return {before, wanted and now_ms or -1}

-- purge: delete dead letters for good.
-- KEYS 1 dead (ZSET id -> died_ms)  2 deadmsg (HASH)  3 meta (HASH)
-- ARGV 1 epoch; then ids
-- RETURNS {status, now_ms, code per id}; codes: 7 done, 8 not there
-- COST O(n log N). CLOCK Redis. The first write is one that a full Redis allows.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('HGET', KEYS[3], 'epoch') ~= ARGV[1] then return {1, now_ms, unpack(redis.call('HMGET', KEYS[3], 'epoch', 'layout'))} end
local reply, purged = {0, now_ms}, 0
for i = 2, #ARGV do
  local found = redis.call('ZREM', KEYS[1], ARGV[i])
  redis.call('HDEL', KEYS[2], ARGV[i])
  purged = purged + found
  reply[#reply + 1] = found == 1 and 7 or 8
end
if purged > 0 then redis.call('HINCRBY', KEYS[3], 'purged', purged) end
return reply

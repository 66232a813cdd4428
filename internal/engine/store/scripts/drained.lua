-- drained: record that a shard has no message left whose home is another shard in the layout of that epoch.
-- KEYS 1 meta (HASH)
-- ARGV 1 epoch  2 "redriven replaced" as they were before the search
-- RETURNS {now_ms, 1 if recorded}: 0 if a dead letter may have come back unseen meanwhile
-- COST O(1). CLOCK Redis. The first write is one that a full Redis allows.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'redriven', 'replaced')
if meta[1] ~= ARGV[1] or (meta[2] or '') .. ' ' .. (meta[3] or '') ~= ARGV[2] then return {now_ms, 0} end
redis.call('HDEL', KEYS[1], 'drained')
redis.call('HSET', KEYS[1], 'drained', ARGV[1] .. ' ' .. string.format('%d', now_ms))
return {now_ms, 1}

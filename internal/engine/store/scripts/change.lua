-- change: make one step of a change of the layout, if the layout is still the one that the caller read.
-- KEYS 1 layout (HASH), also the channel that announces changes
-- ARGV 1 epoch, 2 next and 3 earlier as they were read; then {field, value}* to be set, '' deletes
-- RETURNS {now_ms, {field*}} as they are now, in the order of layout.lua
-- COST O(1). CLOCK Redis. The first write is one that a full Redis allows.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now = redis.call('HMGET', KEYS[1], 'epoch', 'next', 'earlier')
if now[1] == ARGV[1] and (now[2] or '') == ARGV[2] and (now[3] or '') == ARGV[3] then
  redis.call('HDEL', KEYS[1], '')
  for i = 4, #ARGV, 2 do
    if ARGV[i + 1] == '' then
      redis.call('HDEL', KEYS[1], ARGV[i])
    else
      redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
    end
  end
  redis.pcall(redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH', KEYS[1], 'changed')
end
return {now_ms, redis.call('HMGET', KEYS[1], 'shards', 'epoch', 'sink', 'max_message', 'earlier', 'next', 'retired', 'dropping', 'rules')}

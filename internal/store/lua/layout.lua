-- layout: make the queue's layout where there is none, and return the one in force.
-- KEYS 1 layout (HASH)
-- ARGV 1 create (1, 0)  2 update (1: sink and max_message are the configuration's)
--      3 shards  4 epoch  5 sink  6 max_message, bytes
-- RETURNS {now_ms, created, shards, epoch, sink, max_message}, or {now_ms} where there is none
-- COST O(1). CLOCK Redis.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local created = 0
if redis.call('HEXISTS', KEYS[1], 'shards') == 0 then
  if ARGV[1] ~= '1' then return {now_ms} end
  redis.call('HSET', KEYS[1], 'shards', ARGV[3], 'epoch', ARGV[4], 'sink', ARGV[5], 'max_message', ARGV[6])
  created = 1
elseif ARGV[2] == '1' then
  local now = redis.call('HMGET', KEYS[1], 'sink', 'max_message')
  if now[1] ~= ARGV[5] or now[2] ~= ARGV[6] then
    redis.call('HSET', KEYS[1], 'sink', ARGV[5], 'max_message', ARGV[6])
  end
end
local layout = redis.call('HMGET', KEYS[1], 'shards', 'epoch', 'sink', 'max_message')
return {now_ms, created, layout[1], layout[2], layout[3], layout[4]}

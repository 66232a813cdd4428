-- layout: make the queue's layout where there is none, and return the one in force.
-- KEYS 1 layout (HASH)
-- ARGV 1 ensure (1: make it if need be, with the sink and max_message given; 0: only read)
--      2 shards  3 epoch  4 sink  5 max_message, bytes
-- RETURNS {now_ms, shards, epoch, sink, max_message}, or {now_ms} where there is none
-- COST O(1). CLOCK Redis.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('HEXISTS', KEYS[1], 'shards') == 0 then
  if ARGV[1] ~= '1' then return {now_ms} end
  redis.call('HSET', KEYS[1], 'shards', ARGV[2], 'epoch', ARGV[3], 'sink', ARGV[4], 'max_message', ARGV[5])
elseif ARGV[1] == '1' then
  local now = redis.call('HMGET', KEYS[1], 'sink', 'max_message')
  if now[1] ~= ARGV[4] or now[2] ~= ARGV[5] then
    redis.call('HSET', KEYS[1], 'sink', ARGV[4], 'max_message', ARGV[5])
  end
end
local layout = redis.call('HMGET', KEYS[1], 'shards', 'epoch', 'sink', 'max_message')
return {now_ms, layout[1], layout[2], layout[3], layout[4]}

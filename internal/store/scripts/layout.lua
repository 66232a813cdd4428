-- layout: make the queue's layout where there is none, and return the one in force.
-- KEYS 1 layout (HASH)
-- ARGV 1 ensure (1: make it if need be, with the sink and max_message given, which a layout that is there gets,
--      too; 2: make it if need be, and leave one that is there alone; 0: only read)
--      2 shards  3 epoch  4 sink  5 max_message, bytes  6 earlier, "4,64"
-- RETURNS {now_ms, {shards, epoch, sink, max_message, earlier, next, retired, dropping}}: none is set where there is none
-- COST O(1). CLOCK Redis.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[1] ~= '0' then
  local now = redis.call('HMGET', KEYS[1], 'shards', 'sink', 'max_message')
  if not now[1] then redis.call('HSET', KEYS[1], 'shards', ARGV[2], 'epoch', ARGV[3], 'earlier', ARGV[6]) end
  if not now[1] or ARGV[1] == '1' and (now[2] ~= ARGV[4] or now[3] ~= ARGV[5]) then
    redis.call('HSET', KEYS[1], 'sink', ARGV[4], 'max_message', ARGV[5])
  end
end
return {now_ms, redis.call('HMGET', KEYS[1], 'shards', 'epoch', 'sink', 'max_message', 'earlier', 'next', 'retired', 'dropping')}

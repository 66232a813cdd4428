-- layout: make the queue's layout if there is none, and return the one in force.
-- KEYS 1 layout (HASH)
-- ARGV 1 ensure (1: make it if need be, with the given sink, max_message and rules, which an existing layout
--      gets, too; 2: make it if need be, and leave an existing one alone; 0: only read)
--      2 shards  3 epoch  4 sink  5 max_message, bytes  6 earlier, "4,64"  7 rules ('': none)
-- RETURNS {now_ms, {shards, epoch, sink, max_message, earlier, next, retired, dropping, rules}}: none is set if there is no layout
-- COST O(1). CLOCK Redis.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now = redis.call('HMGET', KEYS[1], 'shards', 'sink', 'max_message', 'rules')
-- A caller without an epoch has read an existing layout, which was lost meanwhile.
if ARGV[1] ~= '0' and (now[1] or ARGV[3] ~= '') then
  if not now[1] then redis.call('HSET', KEYS[1], 'shards', ARGV[2], 'epoch', ARGV[3], 'earlier', ARGV[6]) end
  if not now[1] or ARGV[1] == '1' then
    if now[2] ~= ARGV[4] or now[3] ~= ARGV[5] then redis.call('HSET', KEYS[1], 'sink', ARGV[4], 'max_message', ARGV[5]) end
    if ARGV[7] == '' and now[4] then redis.call('HDEL', KEYS[1], 'rules') end
    if ARGV[7] ~= '' and now[4] ~= ARGV[7] then redis.call('HSET', KEYS[1], 'rules', ARGV[7]) end
  end
end
return {now_ms, redis.call('HMGET', KEYS[1], 'shards', 'epoch', 'sink', 'max_message', 'earlier', 'next', 'retired', 'dropping', 'rules')}

-- fence: bind a shard to a layout: callers with another one are refused from now on.
-- KEYS 1 meta (HASH)
-- ARGV 1 epoch  2 content of the layout, "shards|earlier,..."  3 make (1: a missing meta is made; 0: it
--      stays missing, since the epoch may have been in use when it was lost)
-- RETURNS {now_ms, epoch in force, content in force}: a fence of the same life is never lowered
-- COST O(1). CLOCK Redis. The first write is one that a full Redis allows.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local epoch, content = unpack(redis.call('HMGET', KEYS[1], 'epoch', 'layout'))
if not epoch and ARGV[3] == '0' then return {now_ms, '', ''} end
local counter, life = string.match(epoch or '', '^(%d+)%-([^-]*)')
local new_counter, new_life = string.match(ARGV[1], '^(%d+)%-([^-]*)')
local same = epoch == ARGV[1]
if life == new_life and not same and tonumber(counter) >= tonumber(new_counter) or same and content then
  return {now_ms, epoch, content or ''}
end
redis.call('HDEL', KEYS[1], 'drained')
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'layout', ARGV[2])
-- Everything in the shard came later.
if not epoch then redis.call('HSET', KEYS[1], 'born', string.format('%d', now_ms)) end
return {now_ms, ARGV[1], ARGV[2]}

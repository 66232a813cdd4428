-- budget: record in a shard's meta how many messages it may hold, waiting or in flight, or
--      how full the queue and Redis are.
-- KEYS 1 meta (HASH)
-- ARGV 1 field, "budget" or "room"  2 value, "12000 messages" or JSON ('': none)
-- RETURNS 1; 0 if the meta is missing, which is not made
-- COST O(1). CLOCK none. The first write is one that a full Redis allows.
if not redis.call('HGET', KEYS[1], 'epoch') then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
if ARGV[2] ~= '' then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end
return 1

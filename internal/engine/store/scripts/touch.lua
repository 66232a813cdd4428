-- touch: write without changing anything, so that a WAIT or WAITAOF after it covers all earlier
-- writes. From Redis 8 and Valkey 8 on, these cover only the writes of their own connection.
-- KEYS 1 meta of a shard, or the layout (HASH)
-- ARGV none
-- RETURNS 1; 0 if the hash is missing, which is not made
-- COST O(1). CLOCK none. The first write is one that a full Redis allows.
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch then return 0 end
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], 'epoch', epoch)
return 1

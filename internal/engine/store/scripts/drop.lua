-- drop: delete an empty shard that no layout has any more; without meta nobody can write to it.
-- KEYS 1 meta (HASH)  2 msg (HASH)  3 dead (ZSET)  4 claims (HASH)  5 settled (HASH); then the shard's other keys
-- ARGV none
-- RETURNS 1 if it is gone, 0 if it is not empty and stays
-- COST O(1): Redis frees the tombstones in the background. CLOCK none. The first write is one that a full Redis allows.
if redis.call('HLEN', KEYS[2]) + redis.call('ZCARD', KEYS[3]) + redis.call('HLEN', KEYS[4]) + redis.call('HLEN', KEYS[5]) > 0 then return 0 end
redis.call('UNLINK', unpack(KEYS))
return 1

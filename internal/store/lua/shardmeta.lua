-- shardmeta: give a shard of the layout its meta, without which nobody can write to it.
-- KEYS 1 meta (HASH)
-- ARGV 1 epoch of the layout in force
-- RETURNS 1 where the shard had another epoch or none, else 0
-- COST O(1). CLOCK none.
if redis.call('HGET', KEYS[1], 'epoch') == ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1])
return 1

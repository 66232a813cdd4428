-- shardmeta: give a shard of the layout its meta, without which nobody can write to it.
-- KEYS 1 meta (HASH)
-- ARGV 1 epoch
-- RETURNS the epoch in force
-- COST O(1). CLOCK none.
redis.call('HSETNX', KEYS[1], 'epoch', ARGV[1])
return redis.call('HGET', KEYS[1], 'epoch')

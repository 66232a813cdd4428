-- budget: say how many messages a shard may have, waiting ones and those in flight.
-- KEYS 1 meta (HASH)
-- ARGV 1 budget, "12000 messages" ('': no limit)
-- RETURNS 1; 0 where the meta is missing, which is not made
-- COST O(1). CLOCK none. The first write is one that a full Redis allows.
if not redis.call('HGET', KEYS[1], 'epoch') then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1] == '' and 'budget' or '')
if ARGV[1] ~= '' then redis.call('HSET', KEYS[1], 'budget', ARGV[1]) end
return 1

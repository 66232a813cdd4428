-- handover: give the shard up at once, so that nobody waits for the lease to end.
-- KEYS 1 holder (STRING instance|number|renewed_ms)  2 wake (channel)
-- ARGV 1 instance
-- RETURNS 1 if the instance held the lease, else 0
-- COST O(1). CLOCK none. The first write is one that a full Redis allows.
local owner = string.match(redis.call('GET', KEYS[1]) or '', '^(.*)|%d+|%d+$')
if owner ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.pcall(redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH', KEYS[2], 'handover')
return 1

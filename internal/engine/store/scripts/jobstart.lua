-- jobstart: record a job that the bridges are to run.
-- KEYS 1 jobs (HASH id -> record; "open" -> ids of those that have not ended)
-- ARGV 1 id  2 record  3 how many may be open at most
-- RETURNS 1, or 0 if too many are open
-- COST O(open jobs). CLOCK none. The first write is one that a full Redis allows.
local open = redis.call('HGET', KEYS[1], 'open') or ''
local _, count = string.gsub(open, '%S+', '')
if count >= tonumber(ARGV[3]) then return 0 end
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2], 'open', open .. ARGV[1] .. ' ')
return 1

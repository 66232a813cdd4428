-- declare: put the declarations of queues in the place of those that the caller has read, or only read them.
-- KEYS 1 queues (HASH revision -> which declarations these are, declared -> all of them)
-- ARGV 1 revision as read ('': none; '-': any, only read)  2 revision, with a mark that no other has  3 declarations
-- RETURNS {1, revision, '', now_ms}: done; {0, revision, declarations, now_ms} as they are: it was only read, or another change came
--        first
-- COST O(declarations). CLOCK Redis, which is only told. The first write is one that a full Redis allows.
-- No revision comes back but with its declarations, so a run that comes late changes nothing.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local revision = redis.call('HGET', KEYS[1], 'revision') or ''
if ARGV[1] ~= '-' and revision == ARGV[2] then return {1, revision, '', now_ms} end -- An earlier run has done it.
if revision ~= ARGV[1] then return {0, revision, redis.call('HGET', KEYS[1], 'declared') or '', now_ms} end
redis.call('HDEL', KEYS[1], 'declared')
redis.call('HSET', KEYS[1], 'revision', ARGV[2], 'declared', ARGV[3])
return {1, ARGV[2], '', now_ms}

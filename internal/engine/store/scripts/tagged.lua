-- tagged: return the messages that have a tag, in the order of their ids, from one on; and where each is.
-- KEYS 1 tags (ZSET tag, NUL, id -> 0)  2 due (ZSET id -> score)  3 msg (HASH id -> stored)
--      4 dead (ZSET id -> died_ms)  5 meta (HASH)
-- ARGV 1 epoch  2 tag  3 id that they come after ('': none)  4 count
-- RETURNS {0, now_ms, {id, where (2 waiting, 3 in flight, 4 dead, 8 gone), its score or died_ms}*}, or
--      {1, now_ms, epoch, layout} of another epoch
-- COST O(count * log N). CLOCK Redis. Writes nothing.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('HGET', KEYS[5], 'epoch') ~= ARGV[1] then return {1, now_ms, unpack(redis.call('HMGET', KEYS[5], 'epoch', 'layout'))} end
local from = ARGV[3] == '' and '[' .. ARGV[2] .. '\0' or '(' .. ARGV[2] .. '\0' .. ARGV[3]
local list = {}
for _, entry in ipairs(redis.call('ZRANGEBYLEX', KEYS[1], from, '(' .. ARGV[2] .. '\1', 'LIMIT', '0', ARGV[4])) do
  local id = string.sub(entry, #ARGV[2] + 2)
  local n = #list
  list[n + 1], list[n + 2], list[n + 3] = id, where(KEYS[2], KEYS[3], KEYS[4], id)
end
return {0, now_ms, list}

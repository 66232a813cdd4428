-- scan: return the ids of one page of a shard's messages, without their bodies.
-- KEYS 1 msg (HASH id -> stored) or dead (ZSET id -> died_ms)
-- ARGV 1 HSCAN or ZSCAN  2 cursor  3 count
-- RETURNS {next cursor ("0": the end), bytes read, {id}*}
-- COST O(count). CLOCK none. Writes nothing.
-- CALLS HSCAN or ZSCAN.
local page = redis.call(ARGV[1], KEYS[1], ARGV[2], 'COUNT', ARGV[3])
local ids, bytes = {}, 0
for i = 1, #page[2], 2 do
  ids[#ids + 1] = page[2][i]
  bytes = bytes + #page[2][i] + #page[2][i + 1]
end
return {page[1], bytes, ids}

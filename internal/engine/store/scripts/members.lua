-- members: return a page of a shard's messages that wait or are in flight, and where each is; or those of given ids, dead
-- ones too. A message that exists from the first page to the last is in one of them, however it moves.
-- KEYS 1 msg (HASH id -> stored)  2 due (ZSET id -> score)  3 dead (ZSET id -> died_ms)  4 meta (HASH)
-- ARGV 1 epoch  2 cursor ('': the given ids)  3 count; of a page only those of  4 this pattern of ids  5 this topic ('': any)
--      6 prefix of ids, after the key, and without  7 this prefix of tokens ('': with all), and if they wait unparked with
--      8 score_min  9 score_max, not included; then the ids
-- RETURNS {0, now_ms, what identifies the server, since a cursor is valid on one server only, next cursor
--      ("0": the end), bytes read, {id, where (2 waiting, 3 in flight, 4 dead, 8 gone), its score or died_ms}*}, or
--      {1, now_ms, epoch, layout} of another epoch
-- COST O(count * log N). CLOCK Redis. Writes nothing.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('HGET', KEYS[4], 'epoch') ~= ARGV[1] then return {1, now_ms, unpack(redis.call('HMGET', KEYS[4], 'epoch', 'layout'))} end
local list, next, bytes, server = {}, '0', 0, ''
local function add(id, least, most)
  local found, score = where(KEYS[2], KEYS[1], KEYS[3], id)
  if found == 2 and score < 4398046511104 and (score < least or score >= most) then return end
  local n = #list
  list[n + 1], list[n + 2], list[n + 3] = id, found, score
end
for i = 10, #ARGV do add(ARGV[i], -math.huge, math.huge) end
if ARGV[2] ~= '' then
  server = tostring(redis) -- An address in the process' memory identifies it; INFO would take another right.
  local page = redis.call('HSCAN', KEYS[1], ARGV[2], 'COUNT', ARGV[3], 'MATCH', ARGV[4])
  next = page[1]
  local topic, prefix, mark, least, most = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
  for i = 1, #page[2], 2 do
    local id, stored = page[2][i], page[2][i + 1]
    bytes = bytes + #id + #stored
    local from = prefix ~= '' and (string.find(id, '\0', 1, true) or 0) + 1
    if (topic == '' or topic_of(stored, 31) == topic) and (mark == '' or string.sub(stored, 15, 14 + #mark) ~= mark)
      and (not from or string.sub(id, from, from + #prefix - 1) == prefix) then add(id, least, most) end
  end
end
return {0, now_ms, server, next, bytes, list}

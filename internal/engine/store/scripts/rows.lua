-- rows: return a part of a page of a shard's waiting messages that belong to rows, without their bodies.
-- KEYS 1 due (ZSET id -> due_ms)  2 msg (HASH id -> stored)
-- ARGV 1 cursor  2 count  3 bytes_max read; then, for the rest of a page that was not read, its ids
-- RETURNS {next cursor ("0": the end), bytes read, {id, token}*, the rest of the page: ids}
-- COST O(count). CLOCK none. Writes nothing.
local next, ids = ARGV[1], {unpack(ARGV, 4)}
if #ids == 0 then
  local page = redis.call('ZSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
  next = page[1]
  for i = 1, #page[2], 2 do ids[#ids + 1] = page[2][i] end
end
local rows, rest, bytes = {}, {}, 0
for n, id in ipairs(ids) do
  local length = redis.call('HSTRLEN', KEYS[2], id)
  if bytes > 0 and bytes + length > tonumber(ARGV[3]) then
    rest = {unpack(ids, n)}
    break
  end
  bytes = bytes + length
  local token = string.sub(redis.call('HGET', KEYS[2], id) or '', 15, 30)
  if #token == 16 and string.find(token, '^~[^~]') then rows[#rows + 1], rows[#rows + 2] = id, token end
end
return {next, bytes, rows, rest}

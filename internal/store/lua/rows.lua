-- rows: one page of a shard's messages that stand for rows, without their bodies.
-- KEYS 1 msg (HASH id -> stored)
-- ARGV 1 cursor  2 count
-- RETURNS {next cursor ("0": the end), bytes read, {id, token}*}
-- COST O(count). CLOCK none. Writes nothing.
local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local rows, bytes = {}, 0
for i = 1, #page[2], 2 do
  local token = string.sub(page[2][i + 1], 15, 30)
  bytes = bytes + #page[2][i] + #page[2][i + 1]
  if #token == 16 and string.find(token, '^~[^~]') then rows[#rows + 1], rows[#rows + 2] = page[2][i], token end
end
return {page[1], bytes, rows}

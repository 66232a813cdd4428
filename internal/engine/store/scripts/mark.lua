-- mark: mark messages as maybe published that an ended claim gave to the broker and that still exist.
-- KEYS 1 msg (HASH id -> stored)  2 attempts (HASH)  3 meta (HASH)
-- ARGV 1 count a stale settle if any is marked (0, 1)  2 bytes_max read; then per message: id, token that was in force
-- RETURNS {messages looked at, marked}
-- COST O(n). CLOCK none. The first write is one that a full Redis allows.
local looked, bytes, marks, ids = 0, 0, {}, {}
for i = 3, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local attempts = redis.call('HLEN', KEYS[2]) > 0 and redis.call('HMGET', KEYS[2], unpack(ids)) or {}
for i = 3, #ARGV, 2 do
  bytes = bytes + redis.call('HSTRLEN', KEYS[1], ARGV[i])
  if looked > 0 and bytes > tonumber(ARGV[2]) then break end
  looked = looked + 1
  local stored = redis.call('HGET', KEYS[1], ARGV[i])
  if stored and string.sub(stored, 15, 30) == ARGV[i + 1] then
    local failures, begun, maybe, rest = string.match(attempts[looked] or '', '^(%d+) (%d+) (%d+)(.*)$')
    marks[#marks + 1], marks[#marks + 2] = ARGV[i], (failures or 0) .. ' ' .. (begun or 0) .. ' ' .. (maybe or 0) + 1 .. (rest or ' 0')
  end
end
redis.call('HDEL', KEYS[3], '')
if #marks > 0 then redis.call('HSET', KEYS[2], unpack(marks)) end
if ARGV[1] == '1' and #marks > 0 then redis.call('HINCRBY', KEYS[3], 'stale_settles', '1') end
return {looked, #marks / 2}

-- redrive: put dead letters back, due now, with their attempts forgotten.
-- KEYS 1 due (ZSET id -> score)  2 msg (HASH id -> stored)  3 attempts (HASH)  4 dead (ZSET)
--      5 deadmsg (HASH)  6 meta (HASH)  7 wake (channel)
-- ARGV 1 epoch  2 bytes_max read; then ids
-- RETURNS {status, now_ms, code per id}; codes: 7 done, 8 not there, 10 has no body and stays, 0 not looked at
-- COST O(n log N). CLOCK Redis. The first write is one that a full Redis allows.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('HGET', KEYS[6], 'epoch') ~= ARGV[1] then return {1, now_ms, unpack(redis.call('HMGET', KEYS[6], 'epoch', 'layout'))} end
local reply, plan, bytes, full, seen = {0, now_ms}, {}, 0, false, {}
for i = 3, #ARGV do
  local code = 0
  local size = redis.call('HSTRLEN', KEYS[5], ARGV[i])
  full = full or bytes > 0 and bytes + size > tonumber(ARGV[2])
  if not full and not seen[ARGV[i]] then
    seen[ARGV[i]], bytes = true, bytes + size
    local dead = redis.call('HGET', KEYS[5], ARGV[i])
    local _, stop, counts, length = string.find(dead or '', '^%-?%d+:([%d ]*):(%d+):')
    local stored = stop and string.sub(dead, stop + length + 1) or ''
    code = not dead and 8 or #stored < 30 and 10 or 7
    if code == 7 then
      local begun, maybe = string.match(counts, '^%d+ (%d+) (%d+)')
      local kept = begun and begun ~= '0' and '0 ' .. begun .. ' ' .. maybe .. ' 0'
      plan[#plan + 1] = {ARGV[i], stored, kept}
    end
  end
  reply[#reply + 1] = code
end
for _, step in ipairs(plan) do
  redis.call('ZREM', KEYS[4], step[1])
  redis.call('HDEL', KEYS[5], step[1])
  redis.call('HSET', KEYS[2], step[1], step[2])
  redis.call('ZADD', KEYS[1], now_ms, step[1])
  if step[3] then redis.call('HSET', KEYS[3], step[1], step[3]) end
end
if #plan > 0 then
  redis.call('HINCRBY', KEYS[6], 'redriven', #plan)
  redis.pcall(redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH', KEYS[7], string.format('%d', now_ms))
end
return reply

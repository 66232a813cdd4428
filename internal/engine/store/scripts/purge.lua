-- purge: delete dead letters for good.
-- KEYS 1 dead (ZSET id -> died_ms)  2 deadmsg (HASH)  3 meta (HASH)
--      4 gone (HASH token -> fate)  5 gonettl (ZSET token -> expiry_ms)  6 settled (HASH token -> fate, id)
--      7 tags (ZSET tag, NUL, id -> 0); where the queue keeps a history: 8 ended (ZSET id -> ended_ms)  9 ends (HASH id -> end)
-- ARGV 1 epoch  2 bytes_max read  3 tombstone_ms  4 limits of the history: count, age_ms; then ids
-- RETURNS {status, now_ms, code per id}; codes: 7 done, 8 not there, 0 not looked at
-- COST O(n log N). CLOCK Redis. The first write is one that a full Redis allows.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('HGET', KEYS[3], 'epoch') ~= ARGV[1] then return {1, now_ms, unpack(redis.call('HMGET', KEYS[3], 'epoch', 'layout'))} end
local reply, ended, bytes, tagged, full, purged = {0, now_ms}, {}, 0, 0, false, 0
for i = 5, #ARGV do
  local code = 0
  local size = redis.call('HSTRLEN', KEYS[2], ARGV[i])
  full = full or tagged > 200 or bytes > 0 and bytes + size > tonumber(ARGV[2])
  if not full then
    local dead = redis.call('HGET', KEYS[2], ARGV[i]) or ''
    bytes = bytes + size
    local _, stop, due_ms, tries, length = string.find(dead, '^(%-?%d+):([%d ]*):(%d+):')
    local token = stop and string.sub(dead, stop + length + 15, stop + length + 30) or ''
    if stop and KEYS[9] then
      local reason = string.sub(dead, stop + 1, stop + length)
      remember(KEYS[8], KEYS[9], ARGV[4], now_ms, {ARGV[i], told('u', due_ms, tries, dead, stop + length + 31, reason)})
    end
    local found = redis.call('ZREM', KEYS[1], ARGV[i])
    redis.call('HDEL', KEYS[2], ARGV[i])
    if stop then tagged = tagged + tags('ZREM', KEYS[7], ARGV[i], dead, stop + length + 31) end
    if string.byte(token) == 126 then ended[#ended + 1] = {token, ARGV[i], string.find(tries, '^%d+ %d+ [1-9]') and 'C' or 'c'} end
    purged, code = purged + found, found == 1 and 7 or 8
  end
  reply[#reply + 1] = code
end
-- An outbox message leaves a trace, so that no late writer brings it back.
for _, e in ipairs(ended) do
  redis.call('HSET', KEYS[4], e[1], e[3])
  redis.call('ZADD', KEYS[5], 'GT', now_ms + tonumber(ARGV[3]), e[1])
  if string.byte(e[1], 2) ~= 126 then redis.call('HSET', KEYS[6], e[1], e[3] .. e[2]) end
end
if purged > 0 then redis.call('HINCRBY', KEYS[3], 'purged', purged) end
return reply

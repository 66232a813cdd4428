-- remove: remove waiting messages of outbox rows that have ended, each only if it waits under its row's token.
-- KEYS 1 due (ZSET id -> score)  2 msg (HASH id -> stored)  3 attempts (HASH)  4 gone (HASH token -> fate)
--      5 gonettl (ZSET token -> expiry_ms)  6 meta (HASH)  7 tags (ZSET tag, NUL, id -> 0); where
--      the queue keeps a history: 8 ended (ZSET id -> ended_ms)  9 ends (HASH id -> end)
-- ARGV 1 tombstone_ms  2 bytes_max read  3 limits of the history: count, age_ms; then per message: id, token, fate ("p", "c")
-- RETURNS {how many were removed, how many of the list, from its beginning, were looked at}
-- COST O(n log N). CLOCK Redis. The first write is one that a full Redis allows.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local found, bytes, looked = {}, 0, 0
for i = 4, #ARGV, 3 do
  local length = redis.call('HSTRLEN', KEYS[2], ARGV[i])
  if bytes > 0 and bytes + length > tonumber(ARGV[2]) then break end
  bytes, looked = bytes + length, looked + 1
  local stored = redis.call('HGET', KEYS[2], ARGV[i])
  if stored and string.sub(stored, 15, 30) == ARGV[i + 1] and redis.call('ZSCORE', KEYS[1], ARGV[i]) then found[#found + 1] = {i, stored} end
end
for _, f in ipairs(found) do
  local i = f[1]
  if KEYS[9] and ARGV[i + 2] == 'c' then -- The history already has a published one.
    remember(KEYS[8], KEYS[9], ARGV[3], now_ms, {ARGV[i], told('c', '', redis.call('HGET', KEYS[3], ARGV[i]) or '', f[2], 31, '')})
  end
  redis.call('ZREM', KEYS[1], ARGV[i])
  redis.call('HDEL', KEYS[2], ARGV[i])
  redis.call('HDEL', KEYS[3], ARGV[i])
  tags('ZREM', KEYS[7], ARGV[i], f[2], 31)
  redis.call('HSET', KEYS[4], ARGV[i + 1], ARGV[i + 2])
  redis.call('ZADD', KEYS[5], now_ms + tonumber(ARGV[1]), ARGV[i + 1])
end
if #found > 0 then redis.call('HINCRBY', KEYS[6], 'cancelled', #found) end
return {#found, looked}

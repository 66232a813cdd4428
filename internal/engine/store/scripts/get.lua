-- get: find one message, wherever it is.
-- KEYS 1 due (ZSET id -> score)  2 msg (HASH id -> stored)  3 claims (HASH token -> packed)
--      4 attempts (HASH)  5 deadmsg (HASH)  6 meta (HASH)  7 dead (ZSET id -> died_ms)  8 routes (HASH slot -> route);
--      where the queue keeps a history: 9 ended (ZSET id -> ended_ms)  10 ends (HASH id -> end)
-- ARGV 1 epoch  2 id
-- RETURNS {status, now_ms, code, score or died_ms, attempts, stored or dead letter, route, end, ended_ms}; see answer.go. If
--      a message is found, the end is that of an earlier one
-- COST O(1), or O(messages in flight) if it is in flight. CLOCK Redis. Writes nothing.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('HGET', KEYS[6], 'epoch') ~= ARGV[1] then return {1, now_ms, unpack(redis.call('HMGET', KEYS[6], 'epoch', 'layout'))} end
local id = ARGV[2]
local stored = redis.call('HGET', KEYS[2], id)
local due = redis.call('ZSCORE', KEYS[1], id)
local last = KEYS[10] and redis.call('HGET', KEYS[10], id)
local ended_ms = last and redis.call('ZSCORE', KEYS[9], id)
local function answer(code, at_ms, attempts, found, route)
  return {0, now_ms, code, at_ms, attempts, found, route or '', ended_ms and last or '', tonumber(ended_ms or 0)}
end
if not stored and not due then
  local dead = redis.call('HGET', KEYS[5], id)
  local died = redis.call('ZSCORE', KEYS[7], id)
  if dead then return answer(4, died and tonumber(died) or 0, '', dead) end
  return answer(8, 0, '', '')
end
local attempts = redis.call('HGET', KEYS[4], id) or ''
if due then
  local slot = math.floor(due / 4398046511104)
  return answer(2, due + 0, attempts, stored or '', slot > 0 and redis.call('HGET', KEYS[8], slot))
end
for _, packed in ipairs(redis.call('HVALS', KEYS[3])) do
  -- Few claims contain the id as text at all.
  local at = string.find(packed, ':' .. id, 1, true) and 1 or #packed + 1
  while at <= #packed do
    local _, stop, length, score = string.find(packed, '^(%d+):(%-?%d+):', at)
    if not stop then break end
    if string.sub(packed, stop + 1, stop + length) == id then
      return answer(3, tonumber(score), attempts, stored)
    end
    at = stop + length + 1
  end
end
return answer(3, 0, attempts, stored)

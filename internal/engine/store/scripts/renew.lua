-- renew: replace messages that wait under tokens no longer in force by what their rows say, for example after Redis was
-- restored to an earlier state.
-- KEYS 1 due (ZSET id -> score)  2 msg (HASH id -> stored)  3 attempts (HASH)  4 gone (HASH token -> fate)
--      5 gonettl (ZSET token -> expiry_ms)  6 settled (HASH token -> fate, id)  7 meta (HASH)  8 wake (channel)
--      9 tags (ZSET tag, NUL, id -> 0)
-- ARGV 1 epoch  2 span, see within  3 tombstone_ms  4 format version  5 bytes_max read; then per message: id, due_ms,
--      mark (1: a copy may be out; 0: none; due: one may if it is due by now), the token under which it waits, token .. encoded
-- RETURNS {status, now_ms, {code, due_ms}*}; see answer.go. Nothing changes unless status is 0. Code 6: it is now as the row
--      says; 9: and a copy may be out; 3: it is being published; 8: another message waits, or none. Code 0: not looked at.
-- COST O(n log N). CLOCK Redis, read once. The first write is one that a full Redis refuses.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('HGET', KEYS[7], 'epoch') ~= ARGV[1] then return {1, now_ms, unpack(redis.call('HMGET', KEYS[7], 'epoch', 'layout'))} end
if not within(ARGV[2], now_ms) then return {2, now_ms} end
local prefix = ARGV[4] .. string.format('%013d', time[1] * 1000 + math.ceil(time[2] / 1000))
local head_ms = redis.call('ZRANGE', KEYS[1], '0', '0', 'WITHSCORES')[2]
local ended = {p = 13, c = 14, n = 14, m = 15, C = 17}

local reply, bytes, renewed, earliest = {0, now_ms}, 0, 0, nil
local function renew(id, due, mark, before, stored)
  local token, old = string.sub(stored, 1, 16), redis.call('HGET', KEYS[2], id)
  local theirs, attempts = string.sub(old or '', 15, 30), redis.call('HGET', KEYS[3], id) or ''
  local begun, maybe = string.match(attempts, '^%d+ (%d+) (%d+)')
  if maybe == '0' then begun, maybe = nil, nil end
  if theirs == token then return maybe and 9 or 12 end
  -- The row's token has ended, and the row is about to learn of it.
  local what = redis.call('HGET', KEYS[4], token) or redis.call('HGET', KEYS[6], token) or ''
  if ended[string.sub(what, 1, 1)] then return ended[string.sub(what, 1, 1)] end
  if theirs ~= before then return 8 end
  if not redis.call('ZSCORE', KEYS[1], id) then return 3 end
  if not maybe and (mark == '1' or mark == 'due' and due <= now_ms + 2000) then begun, maybe = '1', '1' end
  redis.call('HSET', KEYS[2], id, prefix .. stored)
  redis.call('ZADD', KEYS[1], string.format('%d', due), id)
  if maybe then redis.call('HSET', KEYS[3], id, '0 ' .. begun .. ' ' .. maybe .. ' 0') else redis.call('HDEL', KEYS[3], id) end
  tags('ZREM', KEYS[9], id, old, 31)
  tags('ZADD', KEYS[9], id, stored, 17)
  -- A late writer must not create the old message again.
  redis.call('HSETNX', KEYS[4], before, 'm' .. token)
  redis.call('ZADD', KEYS[5], 'GT', now_ms + tonumber(ARGV[3]), before)
  renewed = renewed + 1
  if not earliest or due < earliest then earliest = due end
  return maybe and 9 or 6
end

for i = 6, #ARGV, 5 do
  local code = 0
  bytes = bytes + redis.call('HSTRLEN', KEYS[2], ARGV[i])
  if i == 6 or bytes <= tonumber(ARGV[5]) then code = renew(ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]) end
  reply[#reply + 1], reply[#reply + 2] = code, tonumber(ARGV[i + 1])
end
if renewed > 0 then
  redis.call('HINCRBY', KEYS[7], 'scheduled', renewed)
  redis.call('HINCRBY', KEYS[7], 'replaced', renewed)
  if not head_ms or earliest < head_ms + 0 then redis.pcall(redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH', KEYS[8], string.format('%d', earliest)) end
end
return reply

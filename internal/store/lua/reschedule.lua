-- reschedule: move a waiting message to another due time; of a dead one, redrive it at that time.
-- KEYS 1 due (ZSET id -> due_ms)  2 msg (HASH id -> stored)  3 attempts (HASH)  4 dead (ZSET)
--      5 deadmsg (HASH)  6 gone (HASH token -> answer)  7 gonettl (ZSET token -> expiry_ms)
--      8 meta (HASH)  9 wake (channel)
-- ARGV 1 epoch  2 not_after_ms  3 run (1, 2)  4 tombstone_ms  5 operation token, in force from now on
--      6 id  7 when (due_ms, or "+" and a delay in ms)
-- RETURNS {status, now_ms, code, due_ms}; see answer.go. Nothing changes unless status is 0.
-- COST O(log N). CLOCK Redis. The first write is one that a full Redis allows.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('HGET', KEYS[8], 'epoch') ~= ARGV[1] then return {1, now_ms, unpack(redis.call('HMGET', KEYS[8], 'epoch', 'layout'))} end
if now_ms > tonumber(ARGV[2]) then return {2, now_ms} end
local token, id, when = ARGV[5], ARGV[6], ARGV[7]
if ARGV[3] == '2' then
  local answer = redis.call('HGET', KEYS[6], token)
  if answer then
    local code, due = string.match(answer, '^(%d+) (%d+)$')
    if code then return {0, now_ms, tonumber(code), tonumber(due)} end
  end
end

local stored = redis.call('HGET', KEYS[2], id)
local waits = redis.call('ZSCORE', KEYS[1], id)
local dead = not stored and redis.call('HGET', KEYS[5], id)
if stored and not waits then return {0, now_ms, 3, 0} end
local attempts
if dead then
  local _, stop, counts, length = string.find(dead, '^%-?%d+:([%d ]*):(%d+):')
  attempts, stored = counts, stop and string.sub(dead, stop + length + 1)
end
-- A message whose body is missing or cut short cannot be moved.
if not stored or #stored < 30 then return {0, now_ms, 8, 0} end
if not dead then attempts = redis.call('HGET', KEYS[3], id) end
local begun, maybe = string.match(attempts or '', '^%d+ (%d+) (%d+)')
local code = 7
if maybe and maybe ~= '0' then code = 9 end
local accepted_ms = time[1] * 1000 + math.ceil(time[2] / 1000)
local due = string.byte(when) == 43 and accepted_ms + tonumber(string.sub(when, 2)) or tonumber(when)
local head = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local head_ms = head[2] and head[2] + 0

local old = redis.call('ZRANGEBYSCORE', KEYS[7], '-inf', now_ms, 'LIMIT', 0, 8)
redis.call('ZREM', KEYS[7], '', unpack(old))
redis.call('HDEL', KEYS[6], '', unpack(old))
redis.call('ZADD', KEYS[1], due, id)
redis.call('HSET', KEYS[2], id, string.sub(stored, 1, 14) .. token .. string.sub(stored, 31))
if dead then
  redis.call('ZREM', KEYS[4], id)
  redis.call('HDEL', KEYS[5], id)
  redis.call('HINCRBY', KEYS[8], 'redriven', 1)
  if begun and begun ~= '0' then redis.call('HSET', KEYS[3], id, '0 ' .. begun .. ' ' .. maybe .. ' 0') end
end
local until_ms, ended = now_ms + tonumber(ARGV[4]), string.sub(stored, 15, 30)
redis.call('HSET', KEYS[6], token, string.format('%d %.0f', code, due))
-- What an earlier reschedule has answered under the token that it ends stays.
redis.call('HSETNX', KEYS[6], ended, 'ended')
redis.call('ZADD', KEYS[7], until_ms, token, until_ms, ended)
redis.call('HINCRBY', KEYS[8], 'rescheduled', 1)
if not head_ms or due < head_ms then redis.pcall(redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH', KEYS[9], string.format('%.0f', due)) end
return {0, now_ms, code, due}

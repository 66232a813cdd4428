-- cancel: remove a message that waits or is dead, and say truthfully what was found.
-- KEYS 1 due (ZSET id -> due_ms)  2 msg (HASH id -> stored)  3 attempts (HASH)  4 dead (ZSET)
--      5 deadmsg (HASH)  6 gone (HASH token -> answer)  7 gonettl (ZSET token -> expiry_ms)  8 meta (HASH)
-- ARGV 1 epoch  2 not_after_ms  3 run (1, 2)  4 tombstone_ms  5 operation token  6 id
-- RETURNS {status, now_ms, code, 0}; see answer.go. Nothing changes unless status is 0.
-- COST O(log N). CLOCK Redis. The first write is one that a full Redis allows.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('HGET', KEYS[8], 'epoch') ~= ARGV[1] then return {1, now_ms, unpack(redis.call('HMGET', KEYS[8], 'epoch', 'layout'))} end
if now_ms > tonumber(ARGV[2]) then return {2, now_ms} end
local id, token = ARGV[6], ARGV[5]
if ARGV[3] == '2' then
  local answer = redis.call('HGET', KEYS[6], token)
  if answer then return {0, now_ms, tonumber(answer), 0} end
end

local stored = redis.call('HGET', KEYS[2], id)
local waits = redis.call('ZSCORE', KEYS[1], id)
local dead = not stored and redis.call('HGET', KEYS[5], id)
if stored and not waits then return {0, now_ms, 3, 0} end
if not stored and not waits and not dead then return {0, now_ms, 8, 0} end
local maybe
local theirs = stored -- what is ended, in its stored form
if dead then
  maybe = string.match(dead, '^%-?%d+:%d+ %d+ (%d+) %d+:')
  local _, stop, length = string.find(dead, '^%-?%d+:[%d ]*:(%d+):')
  theirs = stop and string.sub(dead, stop + length + 1)
else
  maybe = string.match(redis.call('HGET', KEYS[3], id) or '', '^%d+ %d+ (%d+)')
end
local code = 7
if maybe and maybe ~= '0' then code = 9 end

redis.call('ZREM', KEYS[1], id)
local old = redis.call('ZRANGEBYSCORE', KEYS[7], '-inf', now_ms, 'LIMIT', 0, 8)
if #old > 0 then
  redis.call('ZREM', KEYS[7], unpack(old))
  redis.call('HDEL', KEYS[6], unpack(old))
end
redis.call('HDEL', KEYS[2], id)
redis.call('HDEL', KEYS[3], id)
if dead then
  redis.call('ZREM', KEYS[4], id)
  redis.call('HDEL', KEYS[5], id)
end
local until_ms = now_ms + tonumber(ARGV[4])
redis.call('HSET', KEYS[6], token, code)
redis.call('ZADD', KEYS[7], until_ms, token)
if theirs then
  -- A second run of its schedule must not bring it back. What a reschedule has
  -- answered under that token stays.
  local ended = string.sub(theirs, 15, 30)
  redis.call('HSETNX', KEYS[6], ended, 'ended')
  redis.call('ZADD', KEYS[7], until_ms, ended)
end
redis.call('HINCRBY', KEYS[8], 'cancelled', 1)
return {0, now_ms, code, 0}

-- claim: take due messages for a limited time, and renew the holder's lease.
-- KEYS 1 due (ZSET id -> due_ms)  2 msg (HASH id -> stored)  3 claims (HASH token -> packed)
--      4 deadlines (ZSET token -> deadline_ms)  5 attempts (HASH)  6 gone (HASH)  7 gonettl (ZSET)
--      8 holder (STRING instance|number|dirty, PX lease)  9 meta (HASH)
-- ARGV 1 instance  2 number of this claim  3 messages_max (0 renews only)  4 bytes_max
--      5 claim_timeout_ms  6 lease_ms; then the tokens of the instance's live claims
-- RETURNS {state, now_ms, held_ms, more, expired, next_due_ms (-1: none), packed, {attempts}, {stored}, epoch}
--      packed is "length:due_ms:id" for each message, in due order; states as message.ClaimState.
-- COST O(n + log N): ids leave due by rank, one packed entry is written. CLOCK Redis, read once.
-- The first write is one that a full Redis allows.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local epoch = redis.call('HGET', KEYS[9], 'epoch')
if not epoch then return {4, now_ms, 0} end
local instance, number, token = ARGV[1], tonumber(ARGV[2]), ARGV[1] .. '|' .. ARGV[2]

-- The lease. Another instance's claims that outlived it are reclaimed first.
local holder = redis.call('GET', KEYS[8])
local last, dirty = 0, '0'
if holder then
  local owner, last_number, mark = string.match(holder, '^(.*)|(%d+)|(%d)$')
  if owner ~= instance then return {1, now_ms, redis.call('PTTL', KEYS[8])} end
  last, dirty = tonumber(last_number), mark
else
  for _, claim in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
    if string.sub(claim, 1, #instance + 1) ~= instance .. '|' then dirty = '1' end
  end
end
local again = redis.call('HGET', KEYS[3], token)
local outdated = not again and number <= last
-- A write that is always allowed comes first.
redis.call('ZREM', KEYS[7], '')
local newest = string.format('%.0f', (dirty == '1' or outdated) and last or math.max(last, number))
redis.call('SET', KEYS[8], instance .. '|' .. newest .. '|' .. dirty, 'PX', ARGV[6])
for i = 7, #ARGV do redis.call('ZADD', KEYS[4], 'XX', now_ms + ARGV[5], ARGV[i]) end
if dirty == '1' or outdated then return {dirty == '1' and 2 or 3, now_ms, 0} end

local ids, more, packed, attempts, bodies = {}, 0, again or '', {}, {}
if again then
  local at = 1
  while at <= #again do
    local _, stop, length = string.find(again, '^(%d+):%-?%d+:', at)
    ids[#ids + 1] = string.sub(again, stop + 1, stop + length)
    at = stop + length + 1
  end
  redis.call('ZADD', KEYS[4], now_ms + ARGV[5], token)
elseif tonumber(ARGV[3]) > 0 then
  ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, ARGV[3])
end
local step, any_attempts = again and 1 or 2, #ids > 0 and redis.call('HLEN', KEYS[5]) > 0
local wanted, taken, bytes, parts = #ids / step, 0, 0, {}
local largest, size_max = tonumber(ARGV[4]), tonumber(ARGV[4])
-- Bodies are read in small chunks, so that few are read beyond the limit: as
-- many as would fit if they were as large as the largest before, one at first.
while taken < wanted do
  local chunk = {}
  local room = math.max(1, math.min(8, math.floor((size_max - bytes) / largest)))
  if taken == 0 then largest = 1 end
  for i = taken + 1, math.min(taken + room, wanted) do chunk[#chunk + 1] = ids[(i - 1) * step + 1] end
  local stored = redis.call('HMGET', KEYS[2], unpack(chunk))
  local counts = any_attempts and redis.call('HMGET', KEYS[5], unpack(chunk))
  for i, id in ipairs(chunk) do
    local size = stored[i] and #stored[i] or 0
    if not again and taken > 0 and bytes + size > size_max then wanted = taken break end
    taken, bytes, largest = taken + 1, bytes + size, math.max(largest, size)
    bodies[taken] = stored[i]
    if any_attempts then attempts[taken] = counts[i] end
    -- Formatted, because Redis 7.2 and later write a round number as 1.79e+12;
    -- + 0, because the tonumber of the in-process Redis cannot read that.
    if not again then parts[taken] = #id .. ':' .. string.format('%.0f', ids[taken * 2] + 0) .. ':' .. id end
  end
end
if not again and taken > 0 then
  packed = table.concat(parts)
  redis.call('ZREMRANGEBYRANK', KEYS[1], 0, taken - 1)
  redis.call('HSET', KEYS[3], token, packed)
  redis.call('ZADD', KEYS[4], now_ms + ARGV[5], token)
  if taken < #ids / 2 or taken == tonumber(ARGV[3]) then more = 1 end
end

local old = redis.call('ZRANGEBYSCORE', KEYS[7], '-inf', now_ms, 'LIMIT', 0, 1000)
if #old > 0 then
  redis.call('ZREM', KEYS[7], unpack(old))
  redis.call('HDEL', KEYS[6], unpack(old))
end
local next_due_ms = (redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] or -1) + 0
local expired = redis.call('ZCOUNT', KEYS[4], '-inf', now_ms) > 0 and 1 or 0
return {0, now_ms, 0, more, expired, next_due_ms, packed, attempts, bodies, epoch}

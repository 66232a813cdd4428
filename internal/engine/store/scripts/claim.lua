-- claim: take due messages for a limited time, and renew the holder's lease.
-- KEYS 1 due (ZSET id -> score)  2 msg (HASH id -> stored)  3 claims (HASH token -> packed)
--      4 deadlines (ZSET token -> deadline_ms)  5 attempts (HASH)  6 gone (HASH)  7 gonettl (ZSET)
--      8 holder (STRING instance|number|renewed_ms, PX lease)  9 meta (HASH)  10 routes (HASH slot -> route)
-- ARGV 1 instance  2 number of this claim  3 messages_max (0 renews only)  4 bytes_max
--      5 claim_timeout_ms  6 lease_ms  7 slot to take from (0: what is not parked)  8 a holder that counts as
--      lapsed ('': none)  9 old_ms: tombstones that expired before it may go  10 number of live claims; then their tokens; then slots to be forgotten if they are empty
-- RETURNS {0, now_ms, 0, more (the limit was reached; of a slot: it is not empty), next_due_ms of what is not
--      parked (-1: none), packed, {attempts}, {stored},
--      epoch, {stray claims}, the instance's last claim number before this one}, or {state, now_ms, held_ms, holder}; states as message.ClaimState.
--      packed is "length:score:id" for each message, in due order.
-- COST O(n + log N): ids are removed from due by rank, one packed entry is written. CLOCK Redis, read once.
-- The first write is one that a full Redis allows.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local epoch = redis.call('HGET', KEYS[9], 'epoch')
if not epoch then return {4, now_ms, 0, ''} end
local instance, number, token, live_end = ARGV[1], tonumber(ARGV[2]), ARGV[1] .. '|' .. ARGV[2], 10 + ARGV[10]

local holder = redis.call('GET', KEYS[8]) or ''
local owner, last = string.match(holder, '^(.*)|(%d+)|%d+$')
if owner and owner ~= instance and holder ~= ARGV[8] then return {1, now_ms, redis.call('PTTL', KEYS[8]), holder} end
last = owner == instance and tonumber(last) or 0
local before = last
-- A new holder must reclaim the claims of others before it claims.
local live, strays, foreign, own, extended, until_ms = {[token] = true}, {}, false, instance .. '|', {}, string.format('%d', now_ms + ARGV[5])
for i = 11, live_end do live[ARGV[i]], extended[#extended + 1], extended[#extended + 2] = true, until_ms, ARGV[i] end
for _, claim in ipairs(redis.call('ZRANGE', KEYS[4], '0', '-1')) do
  if string.sub(claim, 1, #own) ~= own then foreign = true elseif not live[claim] then strays[#strays + 1] = claim end end
local again = redis.call('HGET', KEYS[3], token)
local outdated = not again and number <= last
-- A write that is always allowed comes first.
local old = redis.call('ZRANGEBYSCORE', KEYS[7], '-inf', math.min(now_ms, tonumber(ARGV[9])), 'LIMIT', '0', '1000')
redis.call('ZREM', KEYS[7], '', unpack(old))
if #old > 0 then redis.call('HDEL', KEYS[6], unpack(old)) end
if not foreign and not outdated then last = math.max(last, number) end
redis.call('SET', KEYS[8], string.format('%s|%d|%d', instance, last, now_ms), 'PX', ARGV[6])
for i = 1, #extended, 2000 do redis.call('ZADD', KEYS[4], 'XX', unpack(extended, i, math.min(i + 1999, #extended))) end
if foreign or outdated then return {foreign and 2 or 3, now_ms, 0, ''} end

local ids, parts, more, packed, attempts, bodies, slot_score, at = {}, {}, 0, again or '', {}, {}, ARGV[7] * 2 ^ 42, 1
while again and at <= #again do
  local _, stop, length = string.find(again, '^(%d+):%-?%d+:', at)
  ids[#ids + 1], at = string.sub(again, stop + 1, stop + length), stop + length + 1
end
if again then redis.call('ZADD', KEYS[4], until_ms, token) elseif tonumber(ARGV[3]) > 0 then
  -- Redis is slow to print a score. If the first and the last have the same one, all have it.
  local first, last = redis.call('ZRANGE', KEYS[1], '0', '0', 'WITHSCORES')[2], redis.call('ZRANGE', KEYS[1], ARGV[3] - 1, ARGV[3] - 1, 'WITHSCORES')[2]
  local alike, heads, shortens = slot_score == 0 and first == last and first, {}, (redis.REDIS_VERSION_NUM or math.huge) >= 0x070200
  local range = {KEYS[1], slot_score > 0 and string.format('%d', slot_score) or '-inf',
    string.format('%d', slot_score + math.min(now_ms, 2 ^ 42 - 1)), 'LIMIT', '0', ARGV[3], not alike and 'WITHSCORES' or nil}
  local found, step = redis.call('ZRANGEBYSCORE', unpack(range)), alike and 1 or 2
  for i = 1, #found / step do
    local id, score = found[step * i - step + 1], alike or found[2 * i]
    -- Redis 7.2 and later write a round number as 1.79e+12; + 0, because the
    -- tonumber of the in-process Redis cannot read that.
    if shortens and string.find(score, 'e', 1, true) then score = string.format('%d', score + 0) end
    heads[#id] = heads[#id] or #id .. ':'
    ids[i], parts[2 * i - 1], parts[2 * i] = id, heads[#id] .. score .. ':', id
  end
end
local wanted, taken, bytes, largest, size_max = #ids, 0, 0, 1, tonumber(ARGV[4])
-- Bodies are read in small chunks, so that few are read beyond the limit: one at
-- first, then as many as would fit if each were as large as the largest so far.
while taken < wanted do
  local room = taken == 0 and 1 or math.max(1, math.min(8, math.floor((size_max - bytes) / largest), wanted - taken))
  local stored = redis.call('HMGET', KEYS[2], unpack(ids, taken + 1, taken + room))
  for i = 1, room do
    local size = stored[i] and #stored[i] or 0
    if not again and taken > 0 and bytes + size > size_max then wanted = taken break end
    taken, bytes, largest = taken + 1, bytes + size, size > largest and size or largest
    bodies[taken] = stored[i]
  end
end
local tried = taken > 0 and redis.call('HLEN', KEYS[5]) or 0
-- Redis keeps a small hash as one list, and each search scans all of it.
local all, of = taken > 16 and tried > 0 and tried <= 512 and redis.call('HGETALL', KEYS[5]), {}
for i = 1, all and #all or 0, 2 do of[all[i]] = all[i + 1] end
for i = 1, all and taken or 0 do attempts[i] = of[ids[i]] or false end
if tried > 0 and not all then attempts = redis.call('HMGET', KEYS[5], unpack(ids, 1, taken)) end
if not again and taken > 0 then
  packed = table.concat(parts, '', 1, 2 * taken)
  local rank = slot_score > 0 and redis.call('ZRANK', KEYS[1], ids[1]) or 0
  redis.call('ZREMRANGEBYRANK', KEYS[1], rank, rank + taken - 1)
  redis.call('HSET', KEYS[3], token, packed)
  redis.call('ZADD', KEYS[4], until_ms, token)
  if taken < #ids or taken == tonumber(ARGV[3]) then more = 1 end
end
-- Messages left in a slot may be due later, because the clock was set back.
if slot_score > 0 and more == 0 and redis.call('ZCOUNT', KEYS[1], string.format('%d', slot_score), string.format('(%d', slot_score + 2 ^ 42)) > 0 then more = 1 end
for i = live_end + 1, #ARGV do
  local from = ARGV[i] * 2 ^ 42
  if redis.call('ZCOUNT', KEYS[1], string.format('%d', from), string.format('(%d', from + 2 ^ 42)) == 0 then redis.call('HDEL', KEYS[10], ARGV[i]) end
end
local next_due_ms = (redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(4398046511104', 'WITHSCORES', 'LIMIT', '0', '1')[2] or -1) + 0
return {0, now_ms, 0, more, next_due_ms, packed, attempts, bodies, epoch, strays, before}

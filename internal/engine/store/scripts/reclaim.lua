-- reclaim: put the messages of one claim back to where they waited, marked maybe published. A message that waits already
-- stays where it is. An unreadable claim ends all the same, or nothing in the shard could be claimed: messages after the
-- unreadable place keep their bodies, and verify finds them.
-- KEYS 1 due (ZSET id -> score)  2 claims (HASH token -> packed)  3 deadlines (ZSET token -> deadline_ms)
--      4 attempts (HASH)  5 holder (STRING instance|number|renewed_ms)  6 meta (HASH)
-- ARGV 1 instance  2 foreign (1: a claim of any other instance; 0: one past its deadline)
--      3 the token of the one claim of this instance to be reclaimed instead ('': none)
-- RETURNS {messages reclaimed, more (1: there are further claims)}
-- COST O(n log N) for one claim. CLOCK Redis. The first write is one that a full Redis allows.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local instance, stray, chosen = ARGV[1], ARGV[3], {}
if string.match(redis.call('GET', KEYS[5]) or '', '^(.*)|%d+|%d+$') ~= instance then return {0, 0} end
local function own(claim) return string.sub(claim, 1, #instance + 1) == instance .. '|' end
if stray ~= '' then
  if own(stray) then chosen = {stray} end
elseif ARGV[2] == '1' then
  for _, claim in ipairs(redis.call('ZRANGE', KEYS[3], '0', '-1')) do
    if not own(claim) then chosen[#chosen + 1] = claim end
  end
else
  chosen = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now_ms, 'LIMIT', '0', '2')
end
local token = chosen[1] or ''
local packed = redis.call('HGET', KEYS[2], token) or ''
local ids, scores, marks, at = {}, {}, {}, 1
while at <= #packed do
  local _, stop, length, score = string.find(packed, '^(%d+):(%-?%d+):', at)
  if not stop or stop + length > #packed then break end
  local id = string.sub(packed, stop + 1, stop + length)
  at = stop + length + 1
  ids[#ids + 1] = id
  scores[#scores + 1], scores[#scores + 2] = score, id
end
local attempts = #ids > 0 and redis.call('HLEN', KEYS[4]) > 0 and redis.call('HMGET', KEYS[4], unpack(ids)) or {}
for n, id in ipairs(ids) do
  local failures, begun, maybe, rest = string.match(attempts[n] or '', '^(%d+) (%d+) (%d+)(.*)$')
  marks[#marks + 1], marks[#marks + 2] = id, (failures or 0) .. ' ' .. (begun or 0) + 1 .. ' ' .. (maybe or 0) + 1 .. (rest or ' 0')
end

redis.call('ZREM', KEYS[3], token)
redis.call('HDEL', KEYS[2], token)
if #ids > 0 then
  redis.call('ZADD', KEYS[1], 'NX', unpack(scores))
  redis.call('HSET', KEYS[4], unpack(marks))
  redis.call('HINCRBY', KEYS[6], 'reclaimed', #ids)
end
return {#ids, #chosen > 1 and 1 or 0}

-- reclaim: put the messages of one overdue claim back at their due times, marked maybe published.
-- KEYS 1 due (ZSET id -> due_ms)  2 claims (HASH token -> packed)  3 deadlines (ZSET token -> deadline_ms)
--      4 attempts (HASH)  5 holder (STRING instance|number|dirty)  6 meta (HASH)
-- ARGV 1 instance  2 foreign (1: a claim of any other instance; 0: one past its deadline)
-- RETURNS {messages reclaimed, more (1: there are further claims)}
-- COST O(n log N) for one claim. CLOCK Redis. The first write is one that a full Redis allows.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local instance, foreign = ARGV[1], ARGV[2] == '1'
local owner, last = string.match(redis.call('GET', KEYS[5]) or '', '^(.*)|(%d+)|%d$')
if owner ~= instance then return {0, 0} end
local overdue = {}
if foreign then
  for _, claim in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
    if string.sub(claim, 1, #instance + 1) ~= instance .. '|' then overdue[#overdue + 1] = claim end
  end
else
  overdue = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now_ms, 'LIMIT', 0, 2)
end
local token = overdue[1]
local packed = token and redis.call('HGET', KEYS[2], token) or ''
local entries, marks, at = {}, {}, 1
while at <= #packed do
  local _, stop, length, due = string.find(packed, '^(%d+):(%-?%d+):', at)
  local id = string.sub(packed, stop + 1, stop + length)
  at = stop + length + 1
  local counts = redis.call('HGET', KEYS[4], id) or '0 0 0 0'
  local failures, begun, maybe, unknowns = string.match(counts, '^(%d+) (%d+) (%d+) (%d+)$')
  entries[#entries + 1] = due
  entries[#entries + 1] = id
  marks[#marks + 1] = id
  marks[#marks + 1] = failures .. ' ' .. begun + 1 .. ' ' .. maybe + 1 .. ' ' .. unknowns
end

redis.call('ZREM', KEYS[3], token or '')
if token then redis.call('HDEL', KEYS[2], token) end
if #entries > 0 then
  redis.call('ZADD', KEYS[1], unpack(entries))
  redis.call('HSET', KEYS[4], unpack(marks))
  redis.call('HINCRBY', KEYS[6], 'reclaimed', #entries / 2)
end
if foreign and #overdue < 2 then
  redis.call('SET', KEYS[5], instance .. '|' .. last .. '|0', 'KEEPTTL')
end
return {#entries / 2, #overdue > 1 and 1 or 0}

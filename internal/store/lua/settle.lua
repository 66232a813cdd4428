-- settle: end a claim: remove what the broker acknowledged, put back or bury the rest.
-- KEYS 1 due (ZSET id -> due_ms)  2 msg (HASH id -> stored)  3 claims (HASH token -> packed)
--      4 deadlines (ZSET)  5 attempts (HASH)  6 dead (ZSET id -> died_ms)  7 deadmsg (HASH)  8 meta (HASH);
--      only where an outbox message was acked: 9 gone (HASH token -> fate)  10 gonettl (ZSET token -> expiry_ms)
--      11 settled (HASH token -> fate, id)
-- ARGV 1 claim token  2 repeated (1: an earlier run may have happened)  3 acked  4 back  5 dead: how many
--      6 of back, retries  7 of acked, suspected duplicates  8 tokens in force of acked and back, 16 bytes each
--      9 first and 10 last entry of the claim, as packed  11 how many of acked, its first, are outbox messages
--      12 how many of these the ledger tells of  13 tombstone_ms; then per acked: id; per back: id, when (due_ms,
--      or "+" and a delay in ms), attempts ('': none), published (1: a copy may be out); per dead: id, due_ms,
--      attempts, reason
-- RETURNS {stale (0, 1), messages marked as maybe published}
-- COST O(n log N). CLOCK Redis. The first write is one that a full Redis allows.
local token = ARGV[1]
local acked, back, dead = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local back_at, dead_at = 14 + acked, 14 + acked + 4 * back

-- The entries tell this claim from one that a late repetition of its number has made.
local packed, first, last = redis.call('HGET', KEYS[3], token), ARGV[9], ARGV[10]
if not packed or string.sub(packed, 1, #first) ~= first or string.sub(packed, -#last) ~= last then
  -- Too late: nothing changes, but a message that was handed to the broker and lives on is marked.
  local live = {}
  local function check(id, n)
    local stored = redis.call('HGET', KEYS[2], id)
    if stored and string.sub(stored, 15, 30) == string.sub(ARGV[8], n * 16 - 15, n * 16) then
      live[#live + 1] = {id, redis.call('HGET', KEYS[5], id) or '0 0 0 0'}
    end
  end
  for n = 1, acked do check(ARGV[13 + n], n) end
  for n = 1, back do
    if ARGV[back_at + 4 * n - 1] == '1' then check(ARGV[back_at + 4 * n - 4], acked + n) end
  end
  if ARGV[2] == '1' and #live == 0 then return {0, 0} end
  redis.call('ZREM', KEYS[4], '')
  for _, entry in ipairs(live) do
    local failures, begun, maybe, unknowns = string.match(entry[2], '^(%d+) (%d+) (%d+) (%d+)$')
    redis.call('HSET', KEYS[5], entry[1], failures .. ' ' .. begun .. ' ' .. maybe + 1 .. ' ' .. unknowns)
  end
  redis.call('HINCRBY', KEYS[8], 'stale_settles', 1)
  return {1, #live}
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now_up_ms = time[1] * 1000 + math.ceil(time[2] / 1000)
local any_attempts, letters = redis.call('HLEN', KEYS[5]) > 0, {}
for i = dead_at, dead_at + 4 * dead - 4, 4 do
  local stored = redis.call('HGET', KEYS[2], ARGV[i]) or ''
  letters[#letters + 1] = ARGV[i + 1] .. ':' .. ARGV[i + 2] .. ':' .. #ARGV[i + 3] .. ':' .. ARGV[i + 3] .. stored
end

redis.call('HDEL', KEYS[3], token)
redis.call('ZREM', KEYS[4], token)
if acked > 0 then
  redis.call('HDEL', KEYS[2], unpack(ARGV, 14, 13 + acked))
  if any_attempts then redis.call('HDEL', KEYS[5], unpack(ARGV, 14, 13 + acked)) end
  redis.call('HINCRBY', KEYS[8], 'published', acked)
  if ARGV[7] ~= '0' then redis.call('HINCRBY', KEYS[8], 'suspected_duplicates', ARGV[7]) end
end
-- A late writer of a row must not bring its message back.
local traced, told, gone, expiry, settled = tonumber(ARGV[11]), tonumber(ARGV[12]), {}, {}, {}
for n = 1, traced do
  local ended = string.sub(ARGV[8], n * 16 - 15, n * 16)
  gone[2 * n - 1], gone[2 * n] = ended, 'p'
  expiry[2 * n - 1], expiry[2 * n] = now_ms + ARGV[13], ended
  if n <= told then settled[2 * n - 1], settled[2 * n] = ended, 'p' .. ARGV[13 + n] end
end
if traced > 0 then
  redis.call('HSET', KEYS[9], unpack(gone))
  redis.call('ZADD', KEYS[10], unpack(expiry))
end
if told > 0 then redis.call('HSET', KEYS[11], unpack(settled)) end
for i = back_at, back_at + 4 * back - 4, 4 do
  local id, when, counts = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  redis.call('ZADD', KEYS[1], string.byte(when) == 43 and now_up_ms + tonumber(string.sub(when, 2)) or when, id)
  if counts ~= '' then redis.call('HSET', KEYS[5], id, counts) end
end
local retried = tonumber(ARGV[6])
if retried > 0 then redis.call('HINCRBY', KEYS[8], 'retried', retried) end
if back > retried then redis.call('HINCRBY', KEYS[8], 'released', back - retried) end
for n = 1, dead do
  local id = ARGV[dead_at + 4 * n - 4]
  redis.call('HDEL', KEYS[2], id)
  redis.call('HDEL', KEYS[5], id)
  redis.call('ZADD', KEYS[6], now_ms, id)
  redis.call('HSET', KEYS[7], id, letters[n])
end
if dead > 0 then redis.call('HINCRBY', KEYS[8], 'dead_lettered', dead) end
return {0, 0}

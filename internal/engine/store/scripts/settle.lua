-- settle: end a claim or a part of it: remove messages that were acknowledged or dropped; put back, park or bury the rest.
-- KEYS 1 due (ZSET id -> score)  2 msg (HASH id -> stored)  3 claims (HASH token -> packed)
--      4 deadlines (ZSET)  5 attempts (HASH)  6 dead (ZSET id -> died_ms)  7 deadmsg (HASH)  8 meta (HASH)
--      9 routes (HASH slot -> route); only if an outbox message was removed: 10 gone (HASH token -> fate)
--      11 gonettl (ZSET token -> expiry_ms)  12 settled (HASH token -> fate, id)
--      13 tags (ZSET tag, NUL, id -> 0); 10 to 13 also if a message with tags was removed; and all of them if the
--      queue keeps a history: 14 ended (ZSET id -> ended_ms)  15 ends (HASH id -> end)
-- ARGV 1 claim token  2 length, 3 first and 4 last entry of the packed claim before  5 the packed claim after
--      ('': it ends)  6 repeated (1: an earlier run may have happened)  7 removed  8 back  9 dead  10 parks: how many
--      11 of back, retries  12 of back, parked  13 of removed, suspected duplicates  14 of removed, its first: outbox
--      messages  15 of these, its first: those that go into the ledger  16 the fate ("p" published, "c" dropped) and
--      the token of each, 17 bytes  17 tombstone_ms  18 of removed, dropped; then per removed: id; per back: id, score
--      (or "+" and a delay in ms), attempts ('': as they are, '-': none); per dead: id, due_ms, attempts, reason; per
--      park: slot, since_ms (0: now), route, reason; then the entries in tags of what was removed; then, with a history, per
--      message that ended: id, end; then how many, and the limits of the history: count, age_ms
-- RETURNS 0 done, 1 stale: the claim is not as it was before, and nothing has changed; see mark.lua
-- COST O(n log N). CLOCK Redis. The first write is one that a full Redis allows.
local token, before, first, last, after = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local removed, back, dead, parks = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local back_at, dead_at = 19 + removed, 19 + removed + 3 * back
local parks_at = dead_at + 4 * dead
local tags_at, ends_at = parks_at + 4 * parks, #ARGV + 1
if KEYS[15] then ends_at = #ARGV - 1 - 2 * tonumber(ARGV[#ARGV - 1]) end

-- The entries distinguish this claim from one that a late repetition of its number made.
local packed = redis.call('HGET', KEYS[3], token)
if not packed or #packed ~= before or string.sub(packed, 1, #first) ~= first or string.sub(packed, -#last) ~= last then
  if ARGV[6] == '1' then return after ~= '' and packed == after and 0 or 1 end
  redis.call('ZREM', KEYS[4], '')
  redis.call('HINCRBY', KEYS[8], 'stale_settles', '1')
  return 1
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now_up_ms = time[1] * 1000 + math.ceil(time[2] / 1000)
local expires, tried = string.format('%d', now_ms + ARGV[17]), redis.call('HLEN', KEYS[5])
local letters, buried, died, gone, expiry, settled, scores, counts, none, routes = {}, {}, {}, {}, {}, {}, {}, {}, {}, {}
for i = dead_at, parks_at - 4, 4 do
  local stored = redis.call('HGET', KEYS[2], ARGV[i]) or ''
  buried[#buried + 1] = ARGV[i]
  died[#died + 1], died[#died + 2] = now_ms, ARGV[i]
  letters[#letters + 1], letters[#letters + 2] = ARGV[i], ARGV[i + 1] .. ':' .. ARGV[i + 2] .. ':' .. #ARGV[i + 3] .. ':' .. ARGV[i + 3] .. stored
end
-- Redis keeps a small hash as one list, and each search scans all of it: a value
-- this long makes it a table, until it is empty.
local function put(key, entries)
  if #entries == 0 then return end
  redis.call('HSET', key, '', string.rep(' ', 65), unpack(entries))
  redis.call('HDEL', key, '')
end

if KEYS[15] then remember(KEYS[14], KEYS[15], ARGV[#ARGV], now_ms, {unpack(ARGV, ends_at, #ARGV - 2)}) end
redis.call('ZREM', KEYS[4], after == '' and token or '')
if after == '' then redis.call('HDEL', KEYS[3], token) else redis.call('HSET', KEYS[3], token, after) end
if tried > 0 and tried <= 512 and removed > 16 then put(KEYS[5], {'', ''}) end
if removed > 0 then redis.call('HDEL', KEYS[2], unpack(ARGV, 19, 18 + removed)) end
if removed > 0 and tried > 0 then redis.call('HDEL', KEYS[5], unpack(ARGV, 19, 18 + removed)) end
if ends_at > tags_at then redis.call('ZREM', KEYS[13], unpack(ARGV, tags_at, ends_at - 1)) end
-- A late writer of a row must not create its message again: the ledger prevents that, and once it has forgotten, a tombstone.
local traced, told = tonumber(ARGV[14]), tonumber(ARGV[15])
for n = 1, traced do
  local fate, ended = string.sub(ARGV[16], n * 17 - 16, n * 17 - 16), string.sub(ARGV[16], n * 17 - 15, n * 17)
  if n <= told then
    settled[#settled + 1], settled[#settled + 2] = ended, fate .. ARGV[18 + n]
  else
    gone[#gone + 1], gone[#gone + 2] = ended, fate
    expiry[#expiry + 1], expiry[#expiry + 2] = expires, ended
  end
end
put(KEYS[10], gone)
if #expiry > 0 then redis.call('ZADD', KEYS[11], 'GT', unpack(expiry)) end
put(KEYS[12], settled)
for i = back_at, dead_at - 3, 3 do
  local id, score, attempts = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  scores[#scores + 1], scores[#scores + 2] = string.byte(score) == 43 and now_up_ms + tonumber(string.sub(score, 2)) or score, id
  if attempts == '-' then none[#none + 1] = id elseif attempts ~= '' then counts[#counts + 1], counts[#counts + 2] = id, attempts end
end
if back > 0 then redis.call('ZADD', KEYS[1], unpack(scores)) end
put(KEYS[5], counts)
if #none > 0 then redis.call('HDEL', KEYS[5], unpack(none)) end
if dead > 0 then
  redis.call('HDEL', KEYS[2], unpack(buried))
  redis.call('HDEL', KEYS[5], unpack(buried))
  redis.call('ZADD', KEYS[6], unpack(died))
  redis.call('HSET', KEYS[7], unpack(letters))
end
for i = parks_at, parks_at + 4 * parks - 4, 4 do
  -- The same route keeps the instant at which it was parked, unless it was paused or above its rate.
  local route = ' ' .. #ARGV[i + 2] .. ':' .. ARGV[i + 2]
  local since, rest = string.match(redis.call('HGET', KEYS[9], ARGV[i]) or '', '^(%d+)(.*)$')
  local reason = ' ' .. string.sub(rest or '', #route + 1) .. ' '
  if not since or string.sub(rest, 1, #route) ~= route or string.find(' paused rate ', reason, 1, true) then since = ARGV[i + 1] ~= '0' and ARGV[i + 1] or string.format('%d', now_ms) end
  routes[#routes + 1], routes[#routes + 2] = ARGV[i], since .. route .. ARGV[i + 3]
end
put(KEYS[9], routes)
local changed = {published = removed - ARGV[18], dropped = tonumber(ARGV[18]), suspected_duplicates = tonumber(ARGV[13]),
  retried = tonumber(ARGV[11]), parked = tonumber(ARGV[12]), released = back - ARGV[11] - ARGV[12], dead_lettered = dead}
for name, n in pairs(changed) do if n > 0 then redis.call('HINCRBY', KEYS[8], name, n) end end
return 0

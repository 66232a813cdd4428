-- schedule: create the messages whose ids are free, and report where the others are.
-- KEYS 1 due (ZSET id -> score)  2 msg (HASH id -> stored)  3 attempts (HASH)  4 dead (ZSET)
--      5 deadmsg (HASH)  6 gone (HASH token -> answer)  7 meta (HASH)  8 wake (channel)  9 deadlines (ZSET)
--      10 tags (ZSET tag, NUL, id -> 0); if a created message leaves a tombstone, and one that has a tombstone is not
--      created again:  11 gonettl (ZSET token -> expiry_ms)
-- ARGV 1 epoch  2 span, see within  3 call_start_ms if an earlier run may have happened ('': none)
--      4 four digits and a number: format version, create (1; 0 asks only, in a home of an earlier layout, and
--      answers 11 if the id is free), relative (1: some are due after a delay), tagged (1: some have tags), bytes_max read of
--      other messages; few calls add more, each after a space: tombstone_ms, with t where answers 2 and 3 leave one, too,
--      or f where they do and one that is there does not count; and the topics of the
--      caller, see limit: 16 answers an existing message of another topic;
--      then per message: when (due_ms, or "+" and a delay in ms), id; then per message: token .. encoded
-- RETURNS {status, now_ms, {code, detail}*}; see answer.go. Nothing changes unless status is 0. Code 0: not
--      looked at, ask again. {0, now_ms, accepted_ms}: all were created, due as asked.
-- COST O(n log N). CLOCK Redis, read once. The first write is one that a full Redis refuses.
local KEYS, ARGV = KEYS, ARGV
local time = redis.call('TIME')
local second_s, part_ms = time[1] + 0, time[2] / 1000
local now_ms = second_s * 1000 + math.floor(part_ms)
local meta = redis.call('HMGET', KEYS[7], 'epoch', 'budget')
if meta[1] ~= ARGV[1] then return {1, now_ms, unpack(redis.call('HMGET', KEYS[7], 'epoch', 'layout'))} end
if not within(ARGV[2], now_ms) then return {2, now_ms} end
-- Rounded up, so that a delay never ends early.
local second, ask, relative = ARGV[3] ~= '', string.byte(ARGV[4], 2) == 48, string.byte(ARGV[4], 3) == 49
local tagged, kept = string.byte(ARGV[4], 4) == 49, KEYS[11]
local accepted_ms, n, body_at = second_s * 1000 + math.ceil(part_ms), (#ARGV - 4) / 3, (2 * #ARGV + 4) / 3
local prefix, any_dead = string.sub(ARGV[4], 1, 1) .. string.format('%013d', accepted_ms), redis.call('ZCARD', KEYS[4]) > 0
-- A later run is not refused, since an earlier one may have created what it finds.
if meta[2] and not second and not ask and redis.call('HLEN', KEYS[2]) + n > tonumber(string.match(meta[2], '^%d+')) then return {3, now_ms} end
local function due_of(when, from_ms) return string.byte(when) == 43 and from_ms + tonumber(string.sub(when, 2)) or tonumber(when) end

-- Delays are often equal.
local entries, alike = {unpack(ARGV, 5, body_at)}, {}
for i = 1, relative and 2 * n or 0, 2 do
  alike[entries[i]] = alike[entries[i]] or string.format('%d', due_of(entries[i], accepted_ms))
  entries[i] = alike[entries[i]]
end

-- Writes the bodies of the ids in due, and sends a hint if the head moved.
-- CALLS SPUBLISH or PUBLISH.
local function create(added, bodies)
  redis.call('HSET', KEYS[2], unpack(bodies))
  redis.call('HINCRBY', KEYS[7], 'scheduled', string.format('%d', #bodies / 2))
  for i = 1, tagged and #bodies or 0, 2 do tags('ZADD', KEYS[10], bodies[i], bodies[i + 1], 31) end
  local head, publish = redis.call('ZRANGE', KEYS[1], '0', '0')[1], redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH'
  for i = 2, #added, 2 do if added[i] == head then redis.pcall(publish, KEYS[8], added[i - 1]) end end
end

-- Usually nothing is in the way. If nothing is dead or in flight, due alone shows that: all were added, each
-- once. Otherwise the added ids are the free ones, and get their bodies below.
if not second and not ask and not any_dead and not kept and redis.call('ZCARD', KEYS[9]) == 0 and redis.call('ZADD', KEYS[1], 'NX', unpack(entries)) == n then
  local bodies = {unpack(ARGV, 6, body_at + 1)} -- The ids are in their places.
  for i = 1, n do bodies[2 * i] = prefix .. ARGV[body_at + i] end
  create(entries, bodies)
  return {0, now_ms, accepted_ms}
end

local tokens, gone, call_start_ms, bytes = {}, {}, tonumber(ARGV[3]), 0
local bytes_max, kept_ms, of_all, topics = string.match(ARGV[4], '^....(%d+) ?(%d*)(%a?) ?(.*)$')
bytes_max, topics = tonumber(bytes_max), limit(topics)
if (second or kept and of_all ~= 'f') and redis.call('HLEN', KEYS[6]) > 0 then
  for i = 1, n do tokens[i] = string.sub(ARGV[body_at + i], 1, 16) end
  gone = redis.call('HMGET', KEYS[6], unpack(tokens))
end

-- Where the message is that is in the way. For a second run, it may be ours; or it may have come after ours
-- ended, and nobody can tell; otherwise it was there before.
local function taken(i, dead)
  local id, when, token = entries[2 * i], ARGV[3 + 2 * i], string.sub(ARGV[body_at + i], 1, 16)
  local key, score = KEYS[dead and 5 or 2], not dead and redis.call('ZSCORE', KEYS[1], id)
  local due = score and (string.match(redis.call('HGET', KEYS[3], id) or '', '^%d+ %d+ %d+ %d+ (%-?%d+)$') or math.fmod(score, 2 ^ 42)) + 0
  local length = (dead or second or topics) and redis.call('HSTRLEN', key, id) or 0
  if bytes > 0 and bytes + length > bytes_max then return 0, 0 end
  bytes = bytes + length
  local stored = length > 0 and redis.call('HGET', key, id) or ''
  local _, stop, size = string.find(dead and stored or '', '^%-?%d+:[%d ]*:(%d+):')
  if second and not kept and (stop or not dead) then
    local before = dead and stop + size or 0
    local stored_ms = tonumber(string.sub(stored, before + 2, before + 14)) or now_ms
    if string.sub(stored, before + 15, before + 30) == token then return 1, due or due_of(when, stored_ms) end
    if stored_ms >= call_start_ms then return 5, 0 end
  end
  if topics and not topics[topic_of(stored, dead and (stop or #stored) + (size or 0) + 31 or 31)] then return 16, 0 end
  if dead then return 4, stop and string.sub(stored, stop + 1, stop + size) or '' end
  return due and 2 or 3, due or 0
end

-- ours: id -> due_ms of what this call has created; a second message with that id is a duplicate.
local reply, ours, free, bodies, marked, traces, expiry = {0, now_ms}, {}, {}, {}, {}, {}, {}
for i = 1, n do
  local id, code, detail = entries[2 * i], 1, tonumber(entries[2 * i - 1])
  local was, was_due = string.match(gone[i] or '', '^s(%d+) (%d+)$')
  if was then code, detail = was + 0, was_due + 0 -- The answer of an earlier run.
  elseif any_dead and redis.call('ZSCORE', KEYS[4], id) then code, detail = taken(i, true)
  elseif gone[i] then code = 1 -- An earlier run created it, and a cancel or a replace has ended it since.
  elseif ours[id] then code, detail = 2, ours[id]
  elseif redis.call('HEXISTS', KEYS[2], id) == 1 then code, detail = taken(i)
  elseif ask then code, detail = 11, 0
  else
    free[#free + 1], free[#free + 2] = entries[2 * i - 1], id
    bodies[#bodies + 1], bodies[#bodies + 2] = id, prefix .. ARGV[body_at + i]
    -- Its first life may have ended already: published, without our knowing.
    if second and not kept then marked[#marked + 1], marked[#marked + 2] = id, '0 1 1 0' end
  end
  if kept and (code == 1 and ours[id] == nil and not gone[i] or of_all ~= '' and not was and (code == 2 or code == 3)) then
    local token = string.sub(ARGV[body_at + i], 1, 16)
    traces[#traces + 1], traces[#traces + 2] = token, string.format('s%d %d', code, detail)
    expiry[#expiry + 1], expiry[#expiry + 2] = string.format('%d', now_ms + kept_ms), token
  end
  if code == 1 then ours[id] = ours[id] or detail end
  reply[#reply + 1], reply[#reply + 2] = code, detail
end
if #free > 0 then
  redis.call('ZADD', KEYS[1], unpack(free))
  if #marked > 0 then redis.call('HSET', KEYS[3], unpack(marked)) end
  create(free, bodies)
end
if #traces > 0 then
  redis.call('HSET', KEYS[6], unpack(traces))
  redis.call('ZADD', kept, unpack(expiry))
end
return reply

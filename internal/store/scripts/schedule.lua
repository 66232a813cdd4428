-- schedule: create the messages whose ids are free, and say of the others where they are.
-- KEYS 1 due (ZSET id -> score)  2 msg (HASH id -> stored)  3 attempts (HASH)  4 dead (ZSET)
--      5 deadmsg (HASH)  6 gone (HASH token -> answer)  7 meta (HASH)  8 wake (channel)
-- ARGV 1 epoch  2 not_after_ms  3 run (1, or 2 where an earlier run may have happened)
--      4 call_start_ms  5 format version  6 create (1; 0 asks only, in a home of an earlier layout, and
--      answers 11 where the id is free)  7 bytes_max read of other messages; then per message:
--      id, when (due_ms, or "+" and a delay in ms), token .. encoded
-- RETURNS {status, now_ms, {code, detail}*}; see answer.go. Nothing changes unless status is 0. Code 0: not
--      looked at, ask again.
-- COST O(n log N). CLOCK Redis, read once. The first write is one that a full Redis refuses.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('HGET', KEYS[7], 'epoch') ~= ARGV[1] then return {1, now_ms, unpack(redis.call('HMGET', KEYS[7], 'epoch', 'layout'))} end
if now_ms > tonumber(ARGV[2]) then return {2, now_ms} end
local second, ask, call_start_ms, version = ARGV[3] == '2', ARGV[6] == '0', tonumber(ARGV[4]), ARGV[5]
-- Rounded up, so that a delay never ends early.
local accepted_ms = time[1] * 1000 + math.ceil(time[2] / 1000)
local stamp = string.format('%013.0f', accepted_ms)
local any_dead = redis.call('ZCARD', KEYS[4]) > 0
local head_ms = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]

local tokens, gone = {}, {}
if second and redis.call('HLEN', KEYS[6]) > 0 then
  for i = 8, #ARGV, 3 do tokens[#tokens + 1] = string.sub(ARGV[i + 2], 1, 16) end
  gone = redis.call('HMGET', KEYS[6], unpack(tokens))
end

local function due_of(when, from_ms)
  if string.byte(when) == 43 then return from_ms + tonumber(string.sub(when, 2)) end
  return tonumber(when)
end

-- Where the message is that stands in the way. For a second run: it may be ours; or it may have come after ours
-- had ended, and nobody can tell; else it was there before.
local bytes_max, bytes = tonumber(ARGV[7]), 0
local function taken(id, when, token, dead)
  local key, score = KEYS[dead and 5 or 2], not dead and redis.call('ZSCORE', KEYS[1], id)
  local due = score and (string.match(redis.call('HGET', KEYS[3], id) or '', '^%d+ %d+ %d+ %d+ (%-?%d+)$') or math.fmod(score, 2 ^ 42)) + 0
  local length = (dead or second) and redis.call('HSTRLEN', key, id) or 0
  if bytes > 0 and bytes + length > bytes_max then return 0, 0 end
  bytes = bytes + length
  local stored = length > 0 and redis.call('HGET', key, id) or ''
  local _, stop, size = string.find(dead and stored or '', '^%-?%d+:[%d ]*:(%d+):')
  if second and (stop or not dead) then
    local before = dead and stop + size or 0
    local stored_ms = tonumber(string.sub(stored, before + 2, before + 14)) or now_ms
    if string.sub(stored, before + 15, before + 30) == token then return 1, due or due_of(when, stored_ms) end
    if stored_ms >= call_start_ms then return 5, 0 end
  end
  if dead then return 4, stop and string.sub(stored, stop + 1, stop + size) or '' end
  return due and 2 or 3, due or 0
end

local reply, entries, earliest = {0, now_ms}, {}, nil
local marked, ours = {}, {} -- ours: id -> due_ms of what this call has created: a second one is a duplicate
for i = 8, #ARGV, 3 do
  local id, when, stored = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local token = string.sub(stored, 1, 16)
  local due = due_of(when, accepted_ms)
  local code, detail = 1, due
  if any_dead and redis.call('ZSCORE', KEYS[4], id) then
    code, detail = taken(id, when, token, true)
  elseif gone[(i - 5) / 3] then
    -- An earlier run created it, and a cancel or a replace has ended it since.
    code = 1
  elseif ours[id] then
    code, detail = 2, ours[id]
  elseif ask and redis.call('HEXISTS', KEYS[2], id) == 0 then
    code, detail = 11, 0
  elseif ask or redis.call('HSETNX', KEYS[2], id, version .. stamp .. stored) == 0 then
    code, detail = taken(id, when, token)
  else
    entries[#entries + 1] = due
    entries[#entries + 1] = id
    if not earliest or due < earliest then earliest = due end
    -- Its first life may have ended already: published, without our knowing.
    if second then marked[#marked + 1] = id; marked[#marked + 1] = '0 1 1 0' end
  end
  if code == 1 then ours[id] = detail end
  reply[#reply + 1] = code
  reply[#reply + 1] = detail
end
if #entries > 0 then
  redis.call('ZADD', KEYS[1], unpack(entries))
  if #marked > 0 then redis.call('HSET', KEYS[3], unpack(marked)) end
  redis.call('HINCRBY', KEYS[7], 'scheduled', #entries / 2)
  if not head_ms or earliest < head_ms + 0 then redis.pcall(redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH', KEYS[8], string.format('%.0f', earliest)) end
end
return reply

-- reschedule: move waiting messages to another due time; of dead ones, redrive them at that time.
-- KEYS 1 due (ZSET id -> score)  2 msg (HASH id -> stored)  3 attempts (HASH)  4 dead (ZSET)
--      5 deadmsg (HASH)  6 gone (HASH token -> answer or fate)  7 gonettl (ZSET token -> expiry_ms)
--      8 meta (HASH)  9 wake (channel)  10 settled (HASH token -> fate, id)
-- ARGV 1 epoch  2 span, see within, followed by old_ms: tombstones that expired before it may go  3 run, as of a cancel  4 tombstone_ms  5 last home (0, 1)  6 bytes_max read  7 redrive
--      (1: only dead letters, counted as redriven and not as rescheduled; 10: it has no body and stays dead)  8 topics of the caller, see limit; others are answered 16; then per message: operation token, in force from now on, id, when (due_ms, "+" and a
--      delay in ms, or "b" and how far from its own due time), for an outbox row, else '', the token in force from
--      now on instead, and the token of the row to be rescheduled, and the token that must be in force ('': any);
--      another message of the id is left alone
-- RETURNS {status, now_ms, {code, due_ms}*}; see answer.go. Nothing changes unless status is 0; if nothing
--      is found, only the row's token ends. Code 0: not looked at, ask again.
-- COST O(n log N). CLOCK Redis. The first write is one that a full Redis allows.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('HGET', KEYS[8], 'epoch') ~= ARGV[1] then return {1, now_ms, unpack(redis.call('HMGET', KEYS[8], 'epoch', 'layout'))} end
if not within(ARGV[2], now_ms) then return {2, now_ms} end
redis.call('ZREM', KEYS[1], '') -- A replica refuses this, before it could report messages as missing.
local accepted_ms = time[1] * 1000 + math.ceil(time[2] / 1000)
local old_ms, until_ms, topics = math.min(now_ms, tonumber(string.match(ARGV[2], '%d+$'))), now_ms + tonumber(ARGV[4]), limit(ARGV[8])

-- How a token that is no longer in force ended: 13 published, 14 cancelled, 17 cancelled and a copy may be out. If the message had never
-- been created ('n'), this run and the cancel after it are repeated: the first must find what it found then.
local function fate(at, hops)
  local what = at ~= '' and (redis.call('HGET', KEYS[6], at) or redis.call('HGET', KEYS[10], at)) or ''
  local sign = string.sub(what, 1, 1)
  if sign == 'm' and hops > 0 then return fate(string.sub(what, 2), hops - 1) end
  return sign == 'p' and 13 or sign == 'c' and 14 or sign == 'C' and 17
end

-- Whether a copy may be out, by the message's attempts.
local function marked(attempts)
  return string.find(attempts or '', '^%d+ %d+ [1-9]')
end

local moved, redriven, earliest = 0, 0, nil
local function reschedule(token, id, when, row, target, life)
  row = row ~= '' and row
  if ARGV[3] == '2' or ARGV[3] == '3' then
    local code, due = string.match(redis.call('HGET', KEYS[6], token) or '', '^(%d+) (%d+)$')
    if code then return tonumber(code), tonumber(due) end
  end

  local stored = redis.call('HGET', KEYS[2], id)
  local waits = redis.call('ZSCORE', KEYS[1], id)
  local dead = not stored and redis.call('HGET', KEYS[5], id)
  local attempts, own_ms
  if dead then
    local _, stop, counts, length = string.find(dead, '^%-?%d+:([%d ]*):(%d+):')
    attempts, stored = counts, stop and string.sub(dead, stop + length + 1)
    own_ms = tonumber(string.match(dead, '^(%-?%d+):'))
  end
  -- A message whose body is missing or cut short cannot be moved.
  local ended = stored and #stored >= 30 and string.sub(stored, 15, 30)
  local due_ms = waits and (string.match(redis.call('HGET', KEYS[3], id) or '', '^%d+ %d+ %d+ %d+ (%-?%d+)$') or math.fmod(waits, 2 ^ 42)) + 0
  -- This is the run's own effect; the row may not know yet that the message is marked.
  if row and ended == row then return marked(dead and attempts or redis.call('HGET', KEYS[3], id)) and 9 or 7, due_ms or tonumber(when) end
  if row and ended and ended ~= target then stored, waits, dead, ended = nil, nil, nil, nil end
  if life ~= '' and ended ~= life or ARGV[7] == '1' and not dead then return 8, 0 end
  if topics and (stored or waits or dead) and not topics[topic_of(stored or '', 31)] then return 16, 0 end
  if ARGV[7] == '1' and not ended then return 10, 0 end
  if stored and not waits and not dead then return 3, 0 end
  if not ended then
    local own = row and fate(row, 8)
    -- This was done, and the message has ended since. If it was published, nobody knows any more whether a copy was out before.
    if own then return own == 14 and 7 or 9, tonumber(when) end
    local code = row and fate(target, 8) or 8
    if code == 8 and target ~= '' and ARGV[5] == '1' then
      redis.call('ZREM', KEYS[7], '')
      redis.call('HSETNX', KEYS[6], target, 'm' .. row)
      redis.call('ZADD', KEYS[7], until_ms, target)
    end
    return code, 0
  end
  if not dead then attempts = redis.call('HGET', KEYS[3], id) end
  local counts, begun, maybe = string.match(attempts or '', '^(%d+ (%d+) (%d+) %d+)')
  local code = marked(attempts) and 9 or 7
  local due = string.byte(when) == 43 and accepted_ms + tonumber(string.sub(when, 2)) or tonumber(when)
    or math.max(0, (due_ms or own_ms) + tonumber(string.sub(when, 2)))
  -- The token of a row's message stays in force, or the row would no longer know the message.
  local in_force = row or string.byte(ended) == 126 and ended or token

  local old = redis.call('ZRANGEBYSCORE', KEYS[7], '-inf', old_ms, 'LIMIT', '0', '8')
  redis.call('ZREM', KEYS[7], '', unpack(old))
  redis.call('HDEL', KEYS[6], '', unpack(old))
  redis.call('ZADD', KEYS[1], due, id)
  redis.call('HSET', KEYS[2], id, renamed(stored, in_force))
  if counts and counts ~= attempts and not dead then redis.call('HSET', KEYS[3], id, counts) end -- A new promise.
  if dead then
    redis.call('ZREM', KEYS[4], id)
    redis.call('HDEL', KEYS[5], id)
    redriven = redriven + 1
    if begun and begun ~= '0' then redis.call('HSET', KEYS[3], id, '0 ' .. begun .. ' ' .. maybe .. ' 0') end
  end
  redis.call('HSET', KEYS[6], token, string.format('%d %d', code, due))
  redis.call('ZADD', KEYS[7], until_ms, token)
  -- An earlier reschedule's answer under the token that this one ends stays.
  for _, was in ipairs({ended, target ~= '' and target or nil}) do
    if was ~= in_force then
      redis.call('HSETNX', KEYS[6], was, string.byte(was) == 126 and 'm' .. in_force or 'ended')
      redis.call('ZADD', KEYS[7], 'GT', until_ms, was)
    end
  end
  if not row and string.find(ended, '^~[^~]') then redis.call('HSET', KEYS[10], ended, string.format(code == 9 and 'd+%d:' or 'd%d:', due) .. id) end
  moved = moved + 1
  if not earliest or due < earliest then earliest = due end
  return code, due
end

local head_ms = redis.call('ZRANGE', KEYS[1], '0', '0', 'WITHSCORES')[2]
local reply, bytes, traced = {0, now_ms}, 0, ARGV[3] == '3' or ARGV[3] == '4'
for i = 9, #ARGV, 6 do
  local id, code, due = ARGV[i + 1], 0, 0
  if #ARGV > 14 then bytes = bytes + redis.call('HSTRLEN', KEYS[2], id) + redis.call('HSTRLEN', KEYS[5], id) end
  if i == 9 or bytes <= tonumber(ARGV[6]) then code, due = reschedule(ARGV[i], id, ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5]) end
  if traced and code ~= 0 and (code ~= 8 or ARGV[5] == '1') then
    redis.call('HSET', KEYS[6], ARGV[i], string.format('%d %d', code, due))
    redis.call('ZADD', KEYS[7], until_ms, ARGV[i])
  end
  reply[#reply + 1], reply[#reply + 2] = code, due
end
if redriven > 0 then redis.call('HINCRBY', KEYS[8], 'redriven', redriven) end
if moved > 0 and ARGV[7] ~= '1' then redis.call('HINCRBY', KEYS[8], 'rescheduled', moved) end
if earliest and (not head_ms or earliest < head_ms + 0) then redis.pcall(redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH', KEYS[9], string.format('%d', earliest)) end
return reply

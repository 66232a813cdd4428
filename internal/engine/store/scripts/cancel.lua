-- cancel: remove messages that wait or are dead, and report truthfully what was found.
-- KEYS 1 due (ZSET id -> score)  2 msg (HASH id -> stored)  3 attempts (HASH)  4 dead (ZSET)
--      5 deadmsg (HASH)  6 gone (HASH token -> answer or fate)  7 gonettl (ZSET token -> expiry_ms)  8 meta (HASH)
--      9 settled (HASH token -> fate, id)  10 tags (ZSET tag, NUL, id -> 0); where the queue keeps a history:
--      11 ended (ZSET id -> ended_ms)  12 ends (HASH id -> end)
-- ARGV 1 epoch  2 span, see within, followed by old_ms: tombstones that expired before it may go  3 run (1; 2: an earlier one may have left its answer; 3: likewise, and every
--      answer is left; 4: every answer is left, in the place of an earlier one)  4 tombstone_ms  5 last home (0, 1)  6 bytes_max read  7 purge (1: only
--      dead letters, which count as purged), or t and a tag that messages must have, or n: rows are the calls that have created the
--      messages, or must not do so any more, whatever tokens the messages have now; 13 then says that one has ended otherwise  8 topics of the caller, see limit; others are answered 16
--      9 limits of the history: count, age_ms; then per message: operation token, id, for an outbox row the token of
--      the row to be cancelled, else '', the token that must be in force ('': any); another message of the id is left alone
-- RETURNS {status, now_ms, {code, 0}*}; see answer.go. Nothing changes unless status is 0; if nothing is
--      found, only the row's token ends. Code 0: not looked at, ask again.
-- COST O(n log N). CLOCK Redis. The first write is one that a full Redis allows.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('HGET', KEYS[8], 'epoch') ~= ARGV[1] then return {1, now_ms, unpack(redis.call('HMGET', KEYS[8], 'epoch', 'layout'))} end
if not within(ARGV[2], now_ms) then return {2, now_ms} end
redis.call('ZREM', KEYS[1], '') -- A replica refuses this, before it could report messages as missing.
local old_ms, until_ms, topics = math.min(now_ms, tonumber(string.match(ARGV[2], '%d+$'))), now_ms + tonumber(ARGV[4]), limit(ARGV[8])
local tag, never = string.match(ARGV[7], '^t(.*)$'), ARGV[7] == 'n'

-- A reschedule's answer under a token stays.
local function leave(ended, fate)
  redis.call('HSETNX', KEYS[6], ended, fate)
  redis.call('ZADD', KEYS[7], 'GT', until_ms, ended)
end

-- How the row's token ended: 13 published, 14 cancelled, 17 cancelled and a copy may be out, 15 replaced by the token of a
-- later operation, 8 unknown.
local function fate(at, in_force)
  for hop = 1, 8 do
    if at == in_force then return 15 end
    local what = redis.call('HGET', KEYS[6], at) or redis.call('HGET', KEYS[9], at) or ''
    local sign = string.sub(what, 1, 1)
    if sign == 'p' then return 13 elseif sign == 'c' then return 14 elseif sign == 'C' then return 17 elseif sign ~= 'm' then return 8 end
    at = string.sub(what, 2)
  end
  return 8
end

local cancelled, tagged = 0, 0
local function cancel(token, id, target, life)
  if ARGV[3] == '2' or ARGV[3] == '3' then
    local answer = redis.call('HGET', KEYS[6], token)
    if answer then return tonumber(answer) end
  end
  local stored = redis.call('HGET', KEYS[2], id)
  local waits = redis.call('ZSCORE', KEYS[1], id)
  local dead = not stored and (redis.call('HGET', KEYS[5], id) or redis.call('ZSCORE', KEYS[4], id) and '') -- '': the letter is lost.
  local found = stored or waits or dead
  local tries, due, reason
  local theirs = stored -- the message that is to end, in its stored form
  if dead then
    local _, stop, due_ms, counts, length = string.find(dead, '^(%-?%d+):([%d ]*):(%d+):')
    theirs = stop and string.sub(dead, stop + length + 1)
    tries, due, reason = counts or '', due_ms, stop and string.sub(dead, stop + 1, stop + length)
  else
    tries = redis.call('HGET', KEYS[3], id) or ''
    due = string.match(tries, '^%d+ %d+ %d+ %d+ (%-?%d+)$') or waits and string.format('%d', math.fmod(waits, 2 ^ 42))
  end
  local maybe = string.match(tries, '^%d+ %d+ (%d+)')
  local is_other = target ~= '' and theirs and string.sub(theirs, 15, 30) ~= target
  if is_other and not (never and first_token(theirs) == target) then stored, waits, dead, found = nil, nil, nil, nil end
  if life ~= '' and string.sub(theirs or '', 15, 30) ~= life or ARGV[7] == '1' and not dead then return 8 end
  if tag and not redis.call('ZSCORE', KEYS[10], tag .. '\0' .. id) then return 8 end
  if topics and found and not topics[topic_of(theirs or '', 31)] then return 16 end
  if stored and not waits then return 3 end
  local code = maybe and maybe ~= '0' and 9 or 7
  local how = code == 9 and 'C' or 'c'
  if not found then
    code = target ~= '' and fate(target, theirs and string.sub(theirs, 15, 30)) or 8
    if never and code == 8 and string.find(redis.call('HGET', KEYS[6], target) or '', '^s1 ') then code = 13 end
    if code ~= 8 or target == '' or ARGV[5] ~= '1' then return code end
  end

  if KEYS[12] and found and theirs then
    remember(KEYS[11], KEYS[12], ARGV[9], now_ms, {id, told(ARGV[7] == '1' and 'u' or 'c', due or '', tries, theirs, 31, reason or '')})
  end
  redis.call('ZREM', KEYS[1], found and id or '')
  local old = redis.call('ZRANGEBYSCORE', KEYS[7], '-inf', old_ms, 'LIMIT', '0', '8')
  if #old > 0 then
    redis.call('ZREM', KEYS[7], unpack(old))
    redis.call('HDEL', KEYS[6], unpack(old))
  end
  -- A late writer of the row must not create it, or create it again.
  if target ~= '' then leave(target, found and how or 'n') end
  if not found then return code end
  redis.call('HDEL', KEYS[2], id)
  redis.call('HDEL', KEYS[3], id)
  if dead then
    redis.call('ZREM', KEYS[4], id)
    redis.call('HDEL', KEYS[5], id)
  end
  leave(token, code)
  if theirs then -- A second run of its schedule must not create it again.
    tagged = tagged + tags('ZREM', KEYS[10], id, theirs, 31)
    local ended = string.sub(theirs, 15, 30)
    if #ended == 16 then leave(ended, string.byte(ended) == 126 and how or 'ended') end -- Else it was cut short.
    -- The ledger tells its row, unless that row made this call.
    if ended ~= target and string.find(ended, '^~[^~]') then redis.call('HSET', KEYS[9], ended, how .. id) end
  end
  cancelled = cancelled + 1
  return code
end

local reply, bytes, traced = {0, now_ms}, 0, ARGV[3] == '3' or ARGV[3] == '4'
for i = 10, #ARGV, 4 do
  local id, code = ARGV[i + 1], 0
  if #ARGV > 13 then bytes = bytes + redis.call('HSTRLEN', KEYS[2], id) + redis.call('HSTRLEN', KEYS[5], id) end
  if i == 10 or tagged <= 200 and bytes <= tonumber(ARGV[6]) then code = cancel(ARGV[i], id, ARGV[i + 2], ARGV[i + 3]) end
  if traced and code ~= 0 and (code ~= 8 or ARGV[5] == '1') then
    if ARGV[3] == '4' then redis.call('HDEL', KEYS[6], ARGV[i]) end
    leave(ARGV[i], code)
  end
  reply[#reply + 1], reply[#reply + 2] = code, 0
end
if cancelled > 0 then redis.call('HINCRBY', KEYS[8], ARGV[7] == '1' and 'purged' or 'cancelled', cancelled) end
return reply

-- put: create the messages of outbox rows, each once under the token of its row.
-- KEYS 1 due (ZSET id -> score)  2 msg (HASH id -> stored)  3 attempts (HASH)  4 dead (ZSET)
--      5 deadmsg (HASH)  6 gone (HASH token -> fate)  7 settled (HASH token -> fate, id)  8 meta (HASH)  9 wake (channel)
--      10 gonettl (ZSET token -> expiry_ms)  11 tags (ZSET tag, NUL, id -> 0)
-- ARGV 1 epoch  2 span, see within  3 create (1; 0 asks only, in a home of an earlier layout, and answers 11
--      if nothing is known: detail 1 if the row is older than this shard, which may have lost its trace)  4 format version  5 bytes_max read of other messages; then per message: id,
--      due_ms, mark (1: a copy may be out; 0: none; due: one may if it is due by now; ms when the row was made:
--      one may if it is due and the row is older than this shard), until_ms (a message without a row:
--      its token has a tombstone from the start, which lives until then; '': none), token .. encoded
-- RETURNS {status, now_ms, {code, detail}*}; see answer.go. Nothing changes unless status is 0. Code 0: not
--      looked at, ask again.
-- COST O(n log N). CLOCK Redis, read once. The first write is one that a full Redis refuses.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('HGET', KEYS[8], 'epoch') ~= ARGV[1] then return {1, now_ms, unpack(redis.call('HMGET', KEYS[8], 'epoch', 'layout'))} end
if not within(ARGV[2], now_ms) then return {2, now_ms} end
local ask, prefix = ARGV[3] == '0', ARGV[4] .. string.format('%013d', time[1] * 1000 + math.ceil(time[2] / 1000))
local any_dead = redis.call('ZCARD', KEYS[4]) > 0
local born_ms = tonumber(redis.call('HGET', KEYS[8], 'born') or -math.huge)
local function is_older(mark) return mark ~= '0' and mark ~= '1' and mark ~= 'due' and tonumber(mark) < born_ms end
local head_ms = redis.call('ZRANGE', KEYS[1], '0', '0', 'WITHSCORES')[2]
local tokens = {}
for at = 6, #ARGV, 5 do tokens[#tokens + 1] = string.sub(ARGV[at + 4], 1, 16) end
local gone = redis.call('HLEN', KEYS[6]) > 0 and redis.call('HMGET', KEYS[6], unpack(tokens)) or {}
local settled = redis.call('HLEN', KEYS[7]) > 0 and redis.call('HMGET', KEYS[7], unpack(tokens)) or {}

-- What became of the token: its message is here, under this token or the one that
-- replaced it, or has ended; otherwise what is in the way, nil if nothing is.
local bytes_max, bytes, hops, ours = tonumber(ARGV[5]), 0, 0, {} -- ours: id -> its place, of what this call has created
local function trace(id, token, n)
  local length = redis.call('HSTRLEN', KEYS[2], id) + redis.call('HSTRLEN', KEYS[5], id)
  if hops > 256 or bytes > 0 and bytes + length > bytes_max then return 0, 0 end
  bytes = bytes + length
  local stored = redis.call('HGET', KEYS[2], id)
  local dead = not stored and redis.call('HGET', KEYS[5], id)
  local _, stop, length = string.find(dead or '', '^%-?%d+:[%d ]*:(%d+):')
  local theirs = stored or stop and string.sub(dead, stop + length + 1) or ''
  local score, moved = redis.call('ZSCORE', KEYS[1], id)
  local due = score and (string.match(redis.call('HGET', KEYS[3], id) or '', '^%d+ %d+ %d+ %d+ (%-?%d+)$') or math.fmod(score, 2 ^ 42)) + 0
    or ours[id] and ARGV[5 * ours[id] + 2] + 0
  for hop = 1, 8 do
    if string.sub(theirs, 15, 30) == token then return 12, due or 0 end
    local what = gone[n] or settled[n]
    if hop > 1 then what = redis.call('HGET', KEYS[6], token) or redis.call('HGET', KEYS[7], token) end
    what = what or ''
    local sign = string.sub(what, 1, 1)
    if sign == 'p' then return 13, 0 end
    if sign == 'c' or sign == 'n' then return 14, 0 end
    if sign == 'C' then return 17, 0 end
    if sign ~= 'm' then break end
    hops = hops + 1
    token = string.sub(what, 2) -- Two statements: the in-process Redis loses count of the loop over one.
    moved = true
  end
  if moved then return 15, 0 end
  -- A dead letter that has lost its body blocks nothing: the row has the body.
  if dead and theirs ~= '' then return 4, stop and string.sub(dead, stop + 1, stop + length) or '' end
  if stored then return due and 2 or 3, due or 0 end
end

local reply, entries, marked, ends, expiry, earliest = {0, now_ms}, {}, {}, {}, {}, nil
for n, token in ipairs(tokens) do
  local id, due, stored = ARGV[5 * n + 1], tonumber(ARGV[5 * n + 2]), ARGV[5 * n + 5]
  local code, detail
  if gone[n] or settled[n] or any_dead and redis.call('ZSCORE', KEYS[4], id) then code, detail = trace(id, token, n) end
  if code then
    -- The token is known already.
  elseif ours[id] then
    code, detail = tokens[ours[id]] == token and 12 or 2, tonumber(ARGV[5 * ours[id] + 2])
  elseif ask and redis.call('HEXISTS', KEYS[2], id) == 0 then
    code, detail = 11, is_older(ARGV[5 * n + 3]) and 1 or 0
  elseif ask or redis.call('HSETNX', KEYS[2], id, prefix .. stored) == 0 then
    code, detail = trace(id, token, n)
  else
    code, detail, ours[id], entries[#entries + 1], entries[#entries + 2] = 1, due, n, ARGV[5 * n + 2], id
    if not earliest or due < earliest then earliest = due end
    -- A copy may be out without our knowing, even if the body was lost. The clock of a node that took over may be behind.
    local bare = any_dead and redis.call('ZREM', KEYS[4], id) == 1 and redis.call('HDEL', KEYS[5], id) and redis.call('HINCRBY', KEYS[8], 'replaced', 1)
    local mark, till = bare and '1' or ARGV[5 * n + 3], ARGV[5 * n + 4]
    if mark == '1' or due <= now_ms + 2000 and (mark == 'due' or is_older(mark)) then marked[#marked + 1], marked[#marked + 2] = id, '0 1 1 0' end
    if till ~= '' then ends[#ends + 1], ends[#ends + 2], expiry[#expiry + 1], expiry[#expiry + 2] = token, 'c', till, token end
  end
  reply[#reply + 1], reply[#reply + 2] = code, detail
end
if #entries > 0 then
  redis.call('ZADD', KEYS[1], unpack(entries))
  if #marked > 0 then redis.call('HSET', KEYS[3], unpack(marked)) end
  if #ends > 0 then redis.call('HSET', KEYS[6], unpack(ends)) redis.call('ZADD', KEYS[10], unpack(expiry)) end
  redis.call('HINCRBY', KEYS[8], 'scheduled', #entries / 2)
  for id, n in pairs(ours) do tags('ZADD', KEYS[11], id, ARGV[5 * n + 5], 17) end
  if not head_ms or earliest < head_ms + 0 then redis.pcall(redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH', KEYS[9], string.format('%d', earliest)) end
end
return reply

-- replace: schedule a message that replaces a waiting or dead one of the same id.
-- KEYS 1 due (ZSET id -> score)  2 msg (HASH id -> stored)  3 attempts (HASH)  4 dead (ZSET)
--      5 deadmsg (HASH)  6 gone (HASH token -> answer)  7 gonettl (ZSET token -> expiry_ms)
--      8 meta (HASH)  9 wake (channel)  10 settled (HASH token -> fate, id)
--      11 tags (ZSET tag, NUL, id -> 0)
-- ARGV 1 epoch  2 span, see within  3 run (1, 2)  4 tombstone_ms  5 format version  6 bytes_max read
--      7 create (1; 0: only replace, 11 if the id is free)  8 topics of the caller, see limit; a message of another
--      topic is not replaced, which is answered 16  9 tombstone_ms if a created message leaves one, and
--      a message that has one is not created again, else 0; with t where answer 3 leaves one, too, or f where
--      it does and one that is there does not count; then per message: id,
--      when (due_ms; "+" and a delay in ms; or that, "<" and how many ms after the time of its header delay-first-at
--      it is due at the latest: that of the message that it replaces, or else now), token .. encoded
-- RETURNS {status, now_ms, {code, detail}*}; see answer.go. Code 0: not looked at, ask again.
-- COST O(n log N). CLOCK Redis, read once. The first write is one that a full Redis refuses.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local meta = redis.call('HMGET', KEYS[8], 'epoch', 'budget')
if meta[1] ~= ARGV[1] then return {1, now_ms, unpack(redis.call('HMGET', KEYS[8], 'epoch', 'layout'))} end
if not within(ARGV[2], now_ms) then return {2, now_ms} end
local second, version, bytes_max, ask = ARGV[3] == '2', ARGV[5], tonumber(ARGV[6]), ARGV[7] == '0'
-- A later run is not refused, since an earlier one may have created what it finds.
if meta[2] and not second and not ask and redis.call('HLEN', KEYS[2]) + (#ARGV - 9) / 3 > tonumber(string.match(meta[2], '^%d+')) then return {3, now_ms} end
local accepted_ms = time[1] * 1000 + math.ceil(time[2] / 1000)
local head_ms = redis.call('ZRANGE', KEYS[1], '0', '0', 'WITHSCORES')[2]

-- Read first what each message meets.
local reply, plan, seen, bytes, replaced, earliest = {0, now_ms}, {}, {}, 0, 0, nil
local kept_ms, of_all = string.match(ARGV[9], '^(%d+)(%a?)$')
local topics, kept, prefix, late = limit(ARGV[8]), kept_ms ~= '0', version .. string.format('%013d', accepted_ms), {}
for i = 10, #ARGV, 3 do
  local id, when, stored = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local delay, bound = string.match(when, '^%+(%d+)<?(%d*)$')
  local due = delay and accepted_ms + delay or tonumber(when)
  local token, code, detail = string.sub(stored, 1, 16), 0, 0
  local length = redis.call('HSTRLEN', KEYS[2], id) + redis.call('HSTRLEN', KEYS[5], id)
  if not seen[id] and (bytes == 0 or bytes + length <= bytes_max) then
    seen[id], bytes = true, bytes + length
    local old, score = redis.call('HGET', KEYS[2], id), redis.call('ZSCORE', KEYS[1], id)
    local old_due = score and (string.match(redis.call('HGET', KEYS[3], id) or '', '^%d+ %d+ %d+ %d+ (%-?%d+)$') or math.fmod(score, 2 ^ 42)) + 0
    local dead = not old and redis.call('HGET', KEYS[5], id)
    local _, stop, dead_counts, length = string.find(dead or '', '^%-?%d+:([%d ]*):(%d+):')
    local before = old or stop and string.sub(dead, stop + length + 1)
    local theirs = before and string.sub(before, 15, 30)
    local step = {id = id, due = due, stored = prefix .. stored, ended = theirs, before = before}
    local was = (second or kept and of_all ~= 'f') and redis.call('HGET', KEYS[6], token)
    if was then -- The answer of an earlier run, if it left one.
      local told, told_due = string.match(was, '^s(%d+) (%d+)$')
      code, detail = told and told + 0 or 1, told and told_due + 0 or due
    elseif theirs and second and not kept then
      -- Ours, or nobody can tell whose: an older version must not replace a newer one. A delay counts from when it was accepted.
      local at = bound and bound ~= '' and first_at(before)
      if delay then due = math.min((tonumber(string.sub(before, 2, 14)) or accepted_ms) + delay, at and string.sub(before, at, at + 12) + bound or math.huge) end
      if theirs == token then code, detail = 1, old_due or due else code = 5 end
    elseif topics and (old or score or dead) and not topics[topic_of(before or '', 31)] then
      code = 16
    elseif old and not old_due then
      code = 3
      if of_all ~= '' then late[#late + 1] = token end
    elseif ask and not old and not dead then
      code = 11
    else
      local place = bound and bound ~= '' and first_at(step.stored)
      if place then
        local before_at = old and first_at(old)
        local first = before_at and string.sub(old, before_at, before_at + 12) or string.format('%013d', accepted_ms)
        step.due = math.min(due, first + bound)
        step.stored = string.sub(step.stored, 1, place - 1) .. first .. string.sub(step.stored, place + 13)
      end
      code, detail = old and 6 or 1, step.due
      local counts = old and redis.call('HGET', KEYS[3], id)
      step.unmark = counts
      if dead then code, step.dead, counts = 6, true, dead_counts end
      -- The mark outlives its message, whose copy may still be out.
      local begun, maybe = string.match(counts or '', '^%d+ (%d+) (%d+)')
      if second and not dead and not kept then begun, maybe = '1', '1' end
      step.mark = maybe and maybe ~= '0' and '0 ' .. begun .. ' ' .. maybe .. ' 0'
      step.how = string.find(dead and dead_counts or counts or '', '^%d+ %d+ [1-9]') and 'C' or 'c'
      step.trace, step.token = kept and string.format('s%d %d', code, step.due), token
      plan[#plan + 1] = step
      if code == 6 then replaced = replaced + 1 end
    end
  end
  reply[#reply + 1], reply[#reply + 2] = code, detail
end

for _, step in ipairs(plan) do
  redis.call('HSET', KEYS[2], step.id, step.stored)
  redis.call('ZADD', KEYS[1], step.due, step.id)
  if step.before then tags('ZREM', KEYS[11], step.id, step.before, 31) end
  tags('ZADD', KEYS[11], step.id, step.stored, 31)
  if step.ended then
    redis.call('HSETNX', KEYS[6], step.ended, string.byte(step.ended) == 126 and step.how or 'ended')
    if string.find(step.ended, '^~[^~]') then redis.call('HSET', KEYS[10], step.ended, step.how .. step.id) end
    redis.call('ZADD', KEYS[7], 'GT', now_ms + tonumber(ARGV[4]), step.ended)
  end
  if step.trace then
    redis.call('HSET', KEYS[6], step.token, step.trace)
    redis.call('ZADD', KEYS[7], now_ms + tonumber(kept_ms), step.token)
  end
  if step.dead then
    redis.call('ZREM', KEYS[4], step.id)
    redis.call('HDEL', KEYS[5], step.id)
  end
  if step.mark then
    redis.call('HSET', KEYS[3], step.id, step.mark)
  elseif step.unmark then
    redis.call('HDEL', KEYS[3], step.id)
  end
  if not earliest or step.due < earliest then earliest = step.due end
end
for _, token in ipairs(late) do
  redis.call('HSET', KEYS[6], token, 's3 0')
  redis.call('ZADD', KEYS[7], now_ms + tonumber(kept_ms), token)
end
if #plan > 0 then redis.call('HINCRBY', KEYS[8], 'scheduled', #plan) end
if replaced > 0 then redis.call('HINCRBY', KEYS[8], 'replaced', replaced) end
if earliest and (not head_ms or earliest < head_ms + 0) then
  redis.pcall(redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH', KEYS[9], string.format('%d', earliest))
end
return reply

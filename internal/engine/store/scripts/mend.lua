-- mend: check again, atomically, whether something is wrong with an entry of a shard, and repair what can be repaired.
-- KEYS 1 due (ZSET id -> score)  2 msg (HASH id -> stored)  3 claims (HASH token -> packed)
--      4 deadlines (ZSET token -> deadline_ms)  5 attempts (HASH)  6 dead (ZSET id -> died_ms)
--      7 deadmsg (HASH)  8 meta (HASH)  9 gone (HASH token -> fate)  10 gonettl (ZSET token -> expiry_ms)
--      11 tags (ZSET tag, NUL, id -> 0)  12 ended (ZSET id -> ended_ms)  13 ends (HASH id -> end)
-- ARGV 1 kind, as package sound names it  2 id, or token  3 mend (1; 0 only looks)  4 tag  5 for a tag: the first 30
--      bytes of the stored message by which it was judged ('': there was none)  6 deadline_ms and 7 tombstone_ms for
--      entries without one  8 how many ends may stay  9 how many of the surplus ends go at once
-- RETURNS 0 nothing is wrong, 1 something is wrong and stays so, 2 it was wrong and is repaired
-- COST O(log N), and O(messages in flight) or O(ends that go). CLOCK Redis. The first write is one that a full Redis allows.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local name, entry = ARGV[2], ARGV[4] .. '\0' .. ARGV[2]
local function has(key) return redis.call('HEXISTS', KEYS[key], name) == 1 end
local function scored(key, member) return redis.call('ZSCORE', KEYS[key], member or name) end

-- Reads a claim: how often the message is in it, and at which score. whole is false if the rest cannot be read.
local function read(packed)
  local count, place_ms, at = 0, nil, 1
  while at <= #packed do
    local _, stop, length, score = string.find(packed, '^(%d+):(%-?%d+):', at)
    if not stop or stop + length > #packed or math.abs(score) > 2 ^ 53 then return count, place_ms, false end
    if string.sub(packed, stop + 1, stop + length) == name then count, place_ms = count + 1, math.fmod(score, 2 ^ 42) end
    at = stop + length + 1
  end
  return count, place_ms, true
end

-- How often claims have the message, and whether one of them can have taken it from where it waits: such a claim is
-- whole, will be reclaimed, and took the message, already due, at its present place or a later one.
local function claims()
  local sum, taken, waits_ms, all = 0, false, math.fmod(scored(1) or 0, 2 ^ 42), redis.call('HGETALL', KEYS[3])
  for i = 1, #all, 2 do
    if string.find(all[i + 1], ':' .. name, 1, true) then
      local count, place_ms, whole = read(all[i + 1])
      sum = sum + count
      taken = taken or count > 0 and whole and scored(4, all[i]) and waits_ms <= place_ms and place_ms <= now_ms
    end
  end
  return sum, taken
end

-- The stored message, alive or dead.
local function life()
  local stored, letter = redis.call('HGET', KEYS[2], name), redis.call('HGET', KEYS[7], name)
  local _, stop, length = string.find(letter or '', '^%-?%d+:[%d ]*:(%d+):')
  return string.sub(stored or stop and string.sub(letter, stop + length + 1) or '', 1, 30)
end

-- Whoever redrives it must know that a copy may be out.
local function bury(reason, out)
  local stored, score = redis.call('HGET', KEYS[2], name) or '', scored(1)
  local failures, begun, maybe, unknowns, promised = string.match(redis.call('HGET', KEYS[5], name) or '', '^(%d+) (%d+) (%d+) (%d+) ?(%-?%d*)$')
  local due = tonumber(promised or '') or score and math.fmod(score, 2 ^ 42) or tonumber(string.sub(stored, 2, 14)) or now_ms
  redis.call('ZREM', KEYS[1], name)
  redis.call('HDEL', KEYS[2], name)
  redis.call('HDEL', KEYS[5], name)
  if has(7) then return end -- Nothing is lost, since there was no body.
  redis.call('ZADD', KEYS[6], string.format('%d', now_ms), name)
  redis.call('HSET', KEYS[7], name, string.format('%d:%d %d %d %d:%d:%s', due, failures or 0, (begun or 0) + out, (maybe or 0) + out, unknowns or 0, #reason, reason) .. stored)
  redis.call('HINCRBY', KEYS[8], 'dead_lettered', '1')
end

-- The oldest ends, if there are too many.
local function trim()
  local many = math.min(redis.call('ZCARD', KEYS[12]) - tonumber(ARGV[8]), tonumber(ARGV[9]))
  local old = redis.call('ZRANGE', KEYS[12], '0', string.format('%d', many - 1))
  redis.call('ZREM', KEYS[12], unpack(old))
  redis.call('HDEL', KEYS[13], unpack(old))
end

-- For each kind: what is wrong, what repairs it, and whether that may be done, if it depends.
local wrong = {
  no_body = {function() return scored(1) and not has(2) and claims() == 0 end, function() bury('verify: it had no body', 0) end},
  nowhere = {function() return has(2) and not scored(1) and not scored(6) and not has(7) and claims() == 0 end,
    function() bury('verify: it was neither waiting nor in flight, when it was due is lost', 1) end},
  waits_claimed = {function() return scored(1) and claims() > 0 end, function() redis.call('ZREM', KEYS[1], name) end,
    function() return select(2, claims()) end},
  claimed_no_body = {function() return not has(2) and claims() > 0 end},
  claimed_twice = {function() return claims() > 1 end},
  alive_and_dead = {function() return has(2) and (scored(6) or has(7)) end},
  no_letter = {function() return scored(6) and not has(7) end,
    function() redis.call('HSET', KEYS[7], name, string.format('%d::32:verify: the dead letter was lost', now_ms)) end},
  unlisted_letter = {function() return has(7) and not scored(6) end, function() redis.call('ZADD', KEYS[6], string.format('%d', now_ms), name) end},
  stray_attempts = {function() return has(5) and not has(2) and not scored(1) and claims() == 0 end, function() redis.call('HDEL', KEYS[5], name) end},
  no_deadline = {function() return has(3) and not scored(4) end, function() redis.call('ZADD', KEYS[4], string.format('%d', now_ms + ARGV[6]), name) end,
    function() return select(3, read(redis.call('HGET', KEYS[3], name))) end},
  no_claim = {function() return scored(4) and not has(3) end, function() redis.call('ZREM', KEYS[4], name) end},
  no_expiry = {function() return has(9) and not scored(10) end, function() redis.call('ZADD', KEYS[10], string.format('%d', now_ms + ARGV[7]), name) end},
  no_tombstone = {function() return scored(10) and not has(9) end, function() redis.call('ZREM', KEYS[10], name) end},
  no_tag = {function() return not scored(11, entry) and life() == ARGV[5] end, function() redis.call('ZADD', KEYS[11], '0', entry) end},
  stray_tag = {function() return scored(11, entry) and life() == ARGV[5] end, function() redis.call('ZREM', KEYS[11], entry) end},
  no_end = {function() return scored(12) and not has(13) end, function() redis.call('ZREM', KEYS[12], name) end},
  unlisted_end = {function() return has(13) and not scored(12) end, function() redis.call('HDEL', KEYS[13], name) end},
  many_ends = {function() return redis.call('ZCARD', KEYS[12]) > tonumber(ARGV[8]) end, trim},
}
local holds, mends, may = unpack(wrong[ARGV[1]])
if not holds() then return 0 end
if ARGV[3] ~= '1' or not mends or may and not may() then return 1 end
redis.call('ZREM', KEYS[4], '')
mends()
return 2

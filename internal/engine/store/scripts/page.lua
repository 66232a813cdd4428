-- page: return a part of a sorted set, in its order, from a given place on.
-- KEYS 1 due or dead (ZSET id -> score)  2 meta (HASH)
-- ARGV 1 epoch  2 score_min  3 score_max, not included  4 score and 5 id that it comes after
--      (4 '': none)  6 count
-- RETURNS {0, now_ms, {id, score}*}, or {1, now_ms, epoch, layout} of another epoch
-- COST O(count + log N), and log N for each step of a binary search among equal scores. CLOCK Redis.
-- Writes nothing.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('HGET', KEYS[2], 'epoch') ~= ARGV[1] then return {1, now_ms, unpack(redis.call('HMGET', KEYS[2], 'epoch', 'layout'))} end
-- Lua compares by the locale, Redis by bytes.
local function behind(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x > y end
  end
  return #a > #b
end
local first, stop = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. ARGV[2]), redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. ARGV[3])
if ARGV[4] ~= '' then
  local low, high = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. ARGV[4]), redis.call('ZCOUNT', KEYS[1], '-inf', ARGV[4])
  while low < high do
    local middle = math.floor((low + high) / 2)
    if behind(redis.call('ZRANGE', KEYS[1], middle, middle)[1], ARGV[5]) then high = middle else low = middle + 1 end
  end
  first = math.max(first, low)
end
local count = math.min(tonumber(ARGV[6]), stop - first)
if count <= 0 then return {0, now_ms, {}} end
local list = redis.call('ZRANGE', KEYS[1], first, first + count - 1, 'WITHSCORES')
for i = 2, #list, 2 do list[i] = list[i] + 0 end
return {0, now_ms, list}

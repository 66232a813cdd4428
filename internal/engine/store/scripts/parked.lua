-- parked: return the slots that hold parked messages, in their order.
-- KEYS 1 due (ZSET id -> score)  2 routes (HASH slot -> "since_ms length:route reason")
-- ARGV 1 the first slot to look at  2 slots_max
-- RETURNS {{slot, messages, due_ms of the first, route as it is stored}*}
-- COST O(slots_max * log N). CLOCK none. Writes nothing.
local found, from = {}, ARGV[1] * 2 ^ 42
for n = 1, tonumber(ARGV[2]) do
  local score = redis.call('ZRANGEBYSCORE', KEYS[1], string.format('%d', from), '+inf', 'WITHSCORES', 'LIMIT', '0', '1')[2]
  if not score then break end
  local slot = math.floor(score / 2 ^ 42)
  local first = string.format('%d', slot * 2 ^ 42)
  from = (slot + 1) * 2 ^ 42
  found[n] = {slot, redis.call('ZCOUNT', KEYS[1], first, string.format('(%d', from)), score - first,
    redis.call('HGET', KEYS[2], string.format('%d', slot)) or ''}
end
return found

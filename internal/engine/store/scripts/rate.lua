-- rate: take what a queue's rates allow, or give back what was not used of it.
-- KEYS 1 rates (HASH topic -> up to when, in microseconds, its rate is used up; the empty topic is the queue)
-- ARGV (topic, messages a second, how many to take; below 0: to give back)*
-- RETURNS how many of each were granted: no more than asked for
-- COST O(topics). CLOCK Redis. The first write is one that a full Redis allows.
-- What is saved up is a second's worth at the most, and less than a message more, so that a slow rate loses nothing
-- between two calls; before the first call it is nothing. A clock that was set back saves nothing up, one that was
-- set forward no more than that.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local topics = {}
for i = 1, #ARGV, 3 do topics[#topics + 1] = ARGV[i] end
local used = redis.call('HMGET', KEYS[1], unpack(topics))
local granted, changed = {}, {}
for i, topic in ipairs(topics) do
  local rate, n = ARGV[i * 3 - 1] + 0, ARGV[i * 3] + 0
  local saved = 1000000 + math.min(200000, math.floor(1000000 / rate) - 1)
  local upto = math.max(math.min(used[i] and used[i] + 0 or now, now), now - saved)
  n = math.min(n, math.floor((now - upto) * rate / 1000000))
  granted[i] = n
  changed[#changed + 1] = topic
  changed[#changed + 1] = string.format('%d', upto + math.ceil(n * 1000000 / rate))
end
redis.call('HDEL', KEYS[1], '\t')
redis.call('HSET', KEYS[1], unpack(changed))
return granted

-- rate: take what a queue's rates allow, or give back what was not used.
-- KEYS 1 rates (HASH topic -> instant, in microseconds, up to which its rate is used up; the empty topic is the queue)
-- ARGV (topic, messages a second, how many to take; below 0: to give back)*
-- RETURNS how many were granted for each, at most what was asked for
-- COST O(topics). CLOCK Redis. The first write is one that a full Redis allows.
-- At most a second's worth is saved up, and less than one message more, so that a slow rate loses nothing
-- between two calls; nothing is saved up before the first call. A clock that is set back saves nothing up, and one
-- that is set forward no more than that.
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

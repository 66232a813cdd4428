-- release: gives items that are held back to their system.
-- KEYS as locked.lua has them
-- ARGV 5 name of the set; for each item: id, nonce, score
-- RETURNS for each item 1 if it was held, 0 if it was cancelled meanwhile
for i = 5, #KEYS do
  local item, at = KEYS[i], 6 + (i - 5) * 3
  local id, nonce, score = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local isHeld = redis.call('ZREM', KEYS[2], id) == 1 and redis.call('HGET', item, 'delaybridge') == nonce
  redis.call('HDEL', KEYS[3], id)
  if isHeld then
    redis.call('ZADD', KEYS[4], score, id)
    redis.call('HDEL', item, 'delaybridge')
    if isAsynq then
      redis.call('HSET', item, 'state', ARGV[5])
    else
      redis.call('DEL', item .. ':lock')
      -- It wakes a worker when the next job is due, as BullMQ's addDelayMarkerIfNeeded does.
      local first = redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')
      redis.call('ZADD', ARGV[4] .. 'marker', math.floor(tonumber(first[2]) / 4096), '1')
    end
  end
  answers[#answers + 1] = isHeld and 1 or 0
end
return answers

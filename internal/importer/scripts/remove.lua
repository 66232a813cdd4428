-- remove: deletes items that are held, as their system does.
-- KEYS as locked.lua has them
-- ARGV for each item: id, nonce, score
-- RETURNS for each item 1 if it is removed, 0 if it is not held any more; then the journal keeps it
for i = 5, #KEYS do
  local item, at = KEYS[i], 5 + (i - 5) * 3
  local id, nonce = ARGV[at], ARGV[at + 1]
  local entry = redis.call('HGET', KEYS[3], id)
  if not entry or not string.find(entry, nonce, 1, true) then
    answers[#answers + 1] = 1 -- by a run of this script whose answer was lost
  elseif redis.call('ZSCORE', KEYS[2], id) and redis.call('HGET', item, 'delaybridge') == nonce then
    if isAsynq then
      local unique = redis.call('HGET', item, 'unique_key')
      if unique and unique ~= '' and redis.call('GET', unique) == id then
        redis.call('DEL', unique)
      end
      redis.call('DEL', item)
    else
      local deduplication = redis.call('HGET', item, 'deid')
      local key = deduplication and ARGV[4] .. 'de:' .. deduplication
      if key and redis.call('GET', key) == id then
        redis.call('DEL', key, ARGV[4] .. 'dn:' .. deduplication)
      end
      redis.call('DEL', item, item .. ':lock', item .. ':logs')
    end
    redis.call('ZREM', KEYS[2], id)
    redis.call('HDEL', KEYS[3], id)
    answers[#answers + 1] = 1
  else
    answers[#answers + 1] = 0
  end
end
return answers

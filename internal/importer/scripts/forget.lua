-- forget: takes items that their system has cancelled out of the journal.
-- KEYS as locked.lua has them
-- ARGV for each item: id, nonce, score
-- RETURNS for each item 1. One of that id that is held under another nonce stays.
for at = 5, #ARGV, 3 do
  local id, nonce = ARGV[at], ARGV[at + 1]
  local entry = redis.call('HGET', KEYS[3], id)
  if entry and string.find(entry, nonce, 1, true) then
    redis.call('HDEL', KEYS[3], id)
    redis.call('ZREM', KEYS[2], id)
  end
  answers[#answers + 1] = 1
end
return answers

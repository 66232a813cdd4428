-- hold: takes items out of their set, so that the handlers of their system do not take them.
-- KEYS as locked.lua has them
-- ARGV 5 field of the content; for each item: id, score, SHA-1 of the content, nonce, busy or empty, entry of the journal
-- RETURNS for each item 1 if it is held, 0 if it is not there any more, or has changed
for i = 5, #KEYS do
  local item, at = KEYS[i], 6 + (i - 5) * 6
  local id, nonce, busy = ARGV[at], ARGV[at + 3], ARGV[at + 4] == 'busy'
  local score, content = redis.call('ZSCORE', KEYS[4], id), redis.call('HGET', item, ARGV[5])
  local isSame = score and content and tonumber(score) == tonumber(ARGV[at + 1])
    and redis.sha1hex(content) == ARGV[at + 2]
  if redis.call('HGET', item, 'delaybridge') == nonce and redis.call('ZSCORE', KEYS[2], id) then
    answers[#answers + 1] = 1 -- by a run of this script whose answer was lost
  elseif isSame and not (not isAsynq and redis.call('EXISTS', item .. ':lock') == 1) then
    redis.call('ZREM', KEYS[4], id)
    redis.call('ZADD', KEYS[2], score, id)
    redis.call('HSET', item, 'delaybridge', nonce)
    redis.call('HSET', KEYS[3], id, ARGV[at + 5])
    if isAsynq then
      redis.call('HSET', item, 'state', busy and 'active' or 'delaybridge')
    elseif busy then
      redis.call('SET', item .. ':lock', nonce)
    end
    answers[#answers + 1] = 1
  else
    answers[#answers + 1] = 0
  end
end
return answers

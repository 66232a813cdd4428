-- pause: pause or resume a queue or one of its topics.
-- KEYS 1 paused (HASH topic -> since_ms; the empty topic is the whole queue; "by", tab, topic -> since_ms and who;
--        "by", tab, tab -> the first one's time in us, and 1 for each call that has changed it, or could have)
--      2 instances (ZSET), also the channel that announces changes
-- ARGV 1 topic  2 pause (1: pause; 0: resume)  3 paused_max  4 field of who  5 who  6 field of the count  7 the count that
--        the caller has seen; '': none yet
-- RETURNS {since_ms before, since_ms now, count}: -1 means not paused; a pause that answers {-1, -1} would be one too
--        many. {-2, -2, count}: the caller has seen another one, and nothing has changed
-- COST O(what is paused). CLOCK Redis. The first write is one that a full Redis allows.
-- Each call counts, also one that finds what it wants, so a run that comes late undoes nothing. The count begins with the time, so that no
-- count from before a wipe comes back.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local changes = redis.call('HGET', KEYS[1], ARGV[6])
if not changes then
  changes = string.format('%d', time[1] * 1000000 + time[2])
  redis.call('ZREM', KEYS[2], '')
  redis.call('HSET', KEYS[1], ARGV[6], changes)
end
if changes ~= ARGV[7] then return {-2, -2, changes + 0} end
local before = (redis.call('HGET', KEYS[1], ARGV[1]) or -1) + 0
local wanted = ARGV[2] == '1'
local since = before
if wanted and before < 0 then
  local paused = 0
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 3) ~= string.sub(ARGV[4], 1, 3) then paused = paused + 1 end
  end
  if paused < tonumber(ARGV[3]) then since = now_ms end
elseif not wanted then
  since = -1
end
redis.call('ZREM', KEYS[2], '')
redis.call('HINCRBY', KEYS[1], ARGV[6], 1)
if since ~= before then
  if since >= 0 then
    local text = string.format('%d', since)
    redis.call('HSET', KEYS[1], ARGV[1], text, ARGV[4], text .. ' ' .. ARGV[5])
  else
    redis.call('HDEL', KEYS[1], ARGV[1], ARGV[4])
  end
  redis.pcall(redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH', KEYS[2], 'paused')
end
return {before, since, changes + 1}

-- pause: pause or resume a queue or one of its topics.
-- KEYS 1 paused (HASH topic -> since_ms; the empty topic is the whole queue; "by", tab, topic -> since_ms and who)
--      2 instances (ZSET), also the channel that announces changes
-- ARGV 1 topic  2 pause (1: pause; 0: resume)  3 paused_max  4 field of who  5 who
-- RETURNS {since_ms before, since_ms now}: -1 means not paused; a pause that answers {-1, -1} would be one too many
-- COST O(what is paused). CLOCK Redis. The first write is one that a full Redis allows.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local before = (redis.call('HGET', KEYS[1], ARGV[1]) or -1) + 0
local wanted = ARGV[2] == '1'
if wanted == (before >= 0) then return {before, before} end
if wanted and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then
  local paused = 0
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 3) ~= string.sub(ARGV[4], 1, 3) then paused = paused + 1 end
  end
  if paused >= tonumber(ARGV[3]) then return {-1, -1} end
end
redis.call('ZREM', KEYS[2], '')
if wanted then
  local since = string.format('%d', now_ms)
  redis.call('HSET', KEYS[1], ARGV[1], since, ARGV[4], since .. ' ' .. ARGV[5])
else
  redis.call('HDEL', KEYS[1], ARGV[1], ARGV[4])
end
redis.pcall(redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH', KEYS[2], 'paused')
return {before, wanted and now_ms or -1}

-- stats: count what one shard holds.
-- KEYS 1 due (ZSET id -> score)  2 msg (HASH id -> stored)  3 dead (ZSET)  4 deadlines (ZSET)
--      5 holder (STRING)  6 meta (HASH)  7 settled (HASH)
-- ARGV none
-- RETURNS {now_ms, waiting, due and not parked, stored, dead, claims, head_due_ms of what is not parked (-1: none),
--      holder, {counter, value}*, rows in the ledger, parked}
-- COST O(log N). CLOCK Redis. Writes nothing.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local head_ms = (redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(4398046511104', 'WITHSCORES', 'LIMIT', '0', '1')[2] or -1) + 0
local holder = string.match(redis.call('GET', KEYS[5]) or '', '^(.*)|%d+|%d+$') or ''
local due = 0
if head_ms >= 0 and head_ms <= now_ms then due = redis.call('ZCOUNT', KEYS[1], '-inf', now_ms) end
return {now_ms, redis.call('ZCARD', KEYS[1]), due, redis.call('HLEN', KEYS[2]), redis.call('ZCARD', KEYS[3]),
  redis.call('ZCARD', KEYS[4]), head_ms, holder, redis.call('HGETALL', KEYS[6]), redis.call('HLEN', KEYS[7]),
  redis.call('ZCOUNT', KEYS[1], '4398046511104', '+inf')}

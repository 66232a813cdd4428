-- jobkeep: take a job that nobody runs, or save its runner's progress and renew the lease.
-- KEYS 1 jobs (HASH id -> record; "id lease" -> until_ms and owner; "id stop"; "open" -> ids that have not ended)
-- ARGV 1 id  2 owner, a new one each time a job is taken  3 lease_ms  4 record ('': take the job)  5 it has ended (1)
-- RETURNS {1, now_ms, record, stop (1: the job is to stop)}, or {0, now_ms}: another owner runs it, or it has ended
-- COST O(open jobs). CLOCK Redis. The first write is one that a full Redis allows.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local open, id = redis.call('HGET', KEYS[1], 'open') or '', ARGV[1]
local first, last = string.find(open, id .. ' ', 1, true)
local till, owner = string.match(redis.call('HGET', KEYS[1], id .. ' lease') or '', '^(%d+) (.*)$')
local record = redis.call('HGET', KEYS[1], id)
-- A lease with more time left than any new one is from before the clock was set back.
local left = owner and till - now_ms or -1
local mine = owner == ARGV[2] or ARGV[4] == '' and (left < 0 or left > tonumber(ARGV[3]))
if not first or not record or not mine then return {0, now_ms} end
redis.call('HDEL', KEYS[1], '')
if ARGV[4] ~= '' then record = ARGV[4] end
redis.call('HSET', KEYS[1], id, record, id .. ' lease', string.format('%d ', now_ms + ARGV[3]) .. ARGV[2])
local stop = redis.call('HEXISTS', KEYS[1], id .. ' stop')
if ARGV[5] == '1' then
  redis.call('HDEL', KEYS[1], id .. ' lease', id .. ' stop')
  redis.call('HSET', KEYS[1], 'open', string.sub(open, 1, first - 1) .. string.sub(open, last + 1))
end
return {1, now_ms, record, stop}

-- onceend: end a request under its idempotency key: keep its answer, or leave it to whoever repeats it, or forget it.
-- KEYS 1 record (STRING PX, see oncebegin)
-- ARGV 1 owner  2 what (a: it is answered; r: it is to be begun again; f: nothing was done, so it is forgotten)
--      3 kept_ms  4 answer
-- RETURNS 1; 0 if the record has another owner by now or is gone, and nothing was done
-- COST O(1). CLOCK none. The first write is one that a full Redis allows.
local record = redis.call('GET', KEYS[1])
local state, owner, request, answer = string.match(record or '', '^(%a) %d+ (%S+) (%S+ %S+ )(.*)$')
if owner ~= ARGV[1] then return 0 end
if state == 'a' then return answer == ARGV[4] and 1 or 0 end
local left_ms = redis.call('PTTL', KEYS[1])
redis.call('DEL', KEYS[1])
if ARGV[2] == 'a' then
  redis.call('SET', KEYS[1], 'a 0 ' .. owner .. ' ' .. request .. ARGV[4], 'PX', ARGV[3])
elseif ARGV[2] == 'r' then
  redis.call('SET', KEYS[1], 'r 0 ' .. owner .. ' ' .. request, 'PX', string.format('%d', math.max(left_ms, 1)))
end
return 1

-- oncebegin: begin a request under its idempotency key, or report what became of the first one.
-- KEYS 1 record (STRING PX: state "n" new, "r" begun again, "a" answered; until_ms, owner, fingerprint, plan, answer,
--      with a space behind each but the last)
-- ARGV 1 fingerprint  2 owner, a new one each time a request is begun  3 plan  4 lease_ms  5 kept_ms
-- RETURNS {code, plan of the first, answer}; codes: 1 begun, 2 begun again, 3 answered, 4 under way, 5 another request
-- COST O(1). CLOCK Redis. The first write is one that a full Redis refuses, unless it is begun again.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local record = redis.call('GET', KEYS[1])
local state, until_ms, owner, print, plan, answer = string.match(record or '', '^(%a) (%d+) (%S+) (%S+) (%S+) (.*)$')
local lease = string.format(' %d ', now_ms + ARGV[4]) .. ARGV[2] .. ' ' .. ARGV[1] .. ' '
if not state then
  redis.call('SET', KEYS[1], 'n' .. lease .. ARGV[3] .. ' ', 'PX', ARGV[5])
  return {1, ARGV[3], ''}
end
if print ~= ARGV[1] then return {5, '', ''} end
if state == 'a' then return {3, plan, answer} end
if owner == ARGV[2] then return {state == 'n' and 1 or 2, plan, ''} end -- Our own run, whose answer was lost.
-- A lease with more time left than any new one is from before Redis' clock was set back.
local left_ms = until_ms - now_ms
if left_ms > 0 and left_ms <= tonumber(ARGV[4]) then return {4, '', ''} end
local kept_ms = redis.call('PTTL', KEYS[1])
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], 'r' .. lease .. plan .. ' ', 'PX', string.format('%d', math.max(kept_ms, 1)))
return {2, plan, ''}

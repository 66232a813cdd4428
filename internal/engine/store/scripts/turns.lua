-- turns: put the record of a key's turns in the place of the one that the caller has read, or only read it.
-- KEYS 1 turns (HASH record -> record, epoch -> '-'; PX); a hash so that a producer needs no right to SET and DEL, and
--      with the field that touch.lua looks for
-- ARGV 1 record as read ('': none; '-': any, only read)  2 record, with a mark that no other has  3 kept_ms  4 span, see within
-- RETURNS {1, record, now_ms}: done; {0, record as it is, now_ms}: it was only read, or another change came first
-- COST O(record). CLOCK Redis, read once. The first write is one that a full Redis allows.
-- A run that comes late changes nothing: no record comes back, and where there was none, its span ends before one that it
-- has put there can have expired.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local record = redis.call('HGET', KEYS[1], 'record') or ''
if ARGV[1] == '-' then return {0, record, now_ms} end
if record == ARGV[2] then return {1, record, now_ms} end -- An earlier run has done it.
if record ~= ARGV[1] or record == '' and not within(ARGV[4], now_ms) then return {0, record, now_ms} end
redis.call('HDEL', KEYS[1], 'record')
redis.call('HSET', KEYS[1], 'record', ARGV[2], 'epoch', '-')
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {1, ARGV[2], now_ms}

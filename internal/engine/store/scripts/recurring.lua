-- recurring: put the record of a recurring schedule in the place of the one that the caller has read.
-- KEYS 1 recurring (HASH name -> record; '' -> the mark of the last change)
-- ARGV 1 name  2 record as read ('': none)  3 mark as read ('': none)  4 record ('': remove it)  5 mark of this change,
--        never used before  6 records_max  7 channel on which to
--        tell the bridges ('': none), of the key's slot; it is no key, so that a producer needs no right to that
-- RETURNS {1, mark, record}: done, or {0, mark, record} as they are: another change came first, or an earlier run has done it. The
--        record is written again then, so that a WAIT covers it; {-1, mark, ''}: one too many
-- COST O(record). CLOCK none. The first write is one that a full Redis allows.
-- No record comes back, and neither does a mark, so a run that comes late changes nothing. Where there is neither, only the mark is set:
-- else a run from before a wipe would find what it had read.
local now = redis.call('HMGET', KEYS[1], ARGV[1], '')
local record, mark = now[1] or '', now[2] or ''
if record == '' and mark == '' then
  redis.call('HDEL', KEYS[1], '')
  redis.call('HSET', KEYS[1], '', ARGV[5])
  return {0, ARGV[5], ''}
end
if record ~= ARGV[2] or record == '' and mark ~= ARGV[3] then
  if record ~= '' then
    redis.call('HDEL', KEYS[1], ARGV[1])
    redis.call('HSET', KEYS[1], ARGV[1], record)
  end
  return {0, mark, record}
end
if record == '' and ARGV[4] ~= '' and redis.call('HLEN', KEYS[1]) > tonumber(ARGV[6]) then return {-1, mark, ''} end
redis.call('HDEL', KEYS[1], ARGV[4] == '' and ARGV[1] or '')
if ARGV[4] == '' then redis.call('HSET', KEYS[1], '', ARGV[5]) else redis.call('HSET', KEYS[1], ARGV[1], ARGV[4], '', ARGV[5]) end
if ARGV[7] ~= '' then redis.pcall(redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH', ARGV[7], 'recurring') end
return {1, ARGV[5], ARGV[4]}

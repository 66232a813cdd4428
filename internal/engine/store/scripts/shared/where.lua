-- Returns where a message of a shard is: 2 it waits, 3 in flight, 4 dead, 8 gone; and its score, or when it died.
local function where(due, msg, dead, id)
  local waits = redis.call('ZSCORE', due, id)
  if waits then return 2, waits + 0 end
  if redis.call('HEXISTS', msg, id) == 1 then return 3, 0 end
  local died = redis.call('ZSCORE', dead, id)
  return died and 4 or 8, (died or 0) + 0
end


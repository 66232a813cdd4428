-- forget: remove what the rows of a database know by now from the ledger.
-- KEYS 1 settled (HASH token -> fate, id)
-- ARGV {token, value as it was read}*
-- RETURNS how many were removed: one that has changed meanwhile stays
-- COST O(n). CLOCK none. The first write is one that a full Redis allows.
local forgotten = 0
for i = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    forgotten = forgotten + redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
return forgotten

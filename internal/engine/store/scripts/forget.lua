-- forget: remove fates from the ledger that the rows of a database have recorded, and leave tombstones instead.
-- KEYS 1 settled (HASH token -> fate, id)  2 gone (HASH token -> fate)  3 gonettl (ZSET token -> expiry_ms)
-- ARGV 1 tombstone_ms; then {token, value as it was read}*
-- RETURNS how many were removed; a fate that changed meanwhile stays
-- COST O(n log N). CLOCK Redis. The first write is one that a full Redis allows.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local expires, tokens, forgotten, expiry, gone = string.format('%d', now_ms + ARGV[1]), {}, {}, {}, {}
for i = 2, #ARGV, 2 do tokens[#tokens + 1] = ARGV[i] end
local ledger, fates = redis.call('HMGET', KEYS[1], unpack(tokens)), redis.call('HMGET', KEYS[2], unpack(tokens))
for n, token in ipairs(tokens) do
  local fate = string.sub(ARGV[2 * n + 1], 1, 1)
  if ledger[n] == ARGV[2 * n + 1] then
    forgotten[#forgotten + 1] = token
    -- A writer that lost its row's lock may still come. A moved message lives on.
    if fate ~= 'd' then
      gone[#gone + 1], gone[#gone + 2] = token, fates[n] or fate
      expiry[#expiry + 1], expiry[#expiry + 2] = expires, token
    end
  end
end
if #forgotten == 0 then return 0 end
redis.call('HDEL', KEYS[1], unpack(forgotten))
if #gone > 0 then
  redis.call('ZADD', KEYS[3], unpack(expiry))
  -- The long value makes Redis keep the hash as a table; in a list, each search would scan all of it.
  redis.call('HSET', KEYS[2], '', string.rep(' ', 65), unpack(gone))
  redis.call('HDEL', KEYS[2], '')
end
return #forgotten

-- unlock: ends an import.
-- KEYS 1 lock
-- ARGV 1 owner of the lock
-- RETURNS 1 if it was the owner's, else 0
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0

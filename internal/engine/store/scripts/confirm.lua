-- confirm: tell whether a claim is here, so that a WAIT behind it tells of this claim and not of a
-- Redis that has lost it.
-- KEYS 1 claims (HASH token -> packed)
-- ARGV 1 the claim's token
-- RETURNS 1, or 0 where there is no such claim
-- COST O(1). CLOCK none. It writes nothing.
return redis.call('HEXISTS', KEYS[1], ARGV[1])

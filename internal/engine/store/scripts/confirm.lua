-- confirm: report whether a claim exists, so that a WAIT after it confirms this claim, and not a
-- Redis that has lost it.
-- KEYS 1 claims (HASH token -> packed)
-- ARGV 1 the claim's token
-- RETURNS 1, or 0 if there is no such claim
-- COST O(1). CLOCK none. It writes nothing.
return redis.call('HEXISTS', KEYS[1], ARGV[1])

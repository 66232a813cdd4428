-- locked: stands before each script that follows, and ends it if another import has the lock.
-- KEYS 1 lock  2 held  3 journal  4 the set  5 and on: the items' hashes
-- ARGV 1 owner of the lock  2 its life in ms  3 asynq or bullmq  4 prefix of all keys  5 and on: those of the script
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return redis.error_reply('LOCKLOST another import has the lock')
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local isAsynq, answers = ARGV[3] == 'asynq', {}

-- Puts a message's tags into the index (ZADD) or takes them out (ZREM). The header that holds them is the first one of
-- the stored message, whose topic is at that place; see message.Encode. A message without tags costs no command.
-- Returns how many tags it has, so that the script can end before it takes long.
-- CALLS ZADD or ZREM.
local function tags(command, index, id, stored, at)
  local length, start = number(stored, at)
  at = start + length + 1 -- behind the topic and the number of headers
  -- Without headers the body is here, which may look like one.
  if string.byte(stored, at - 1) == 0 or string.sub(stored, at, at + 10) ~= '\10delay-tags' then return 0 end
  length, start = number(stored, at + 11)
  local entries, count = {}, 0
  for tag in string.gmatch(string.sub(stored, start, start + length - 1), '[^,]+') do
    if command == 'ZADD' then entries[#entries + 1] = '0' end
    entries[#entries + 1], count = tag .. '\0' .. id, count + 1
  end
  redis.call(command, index, unpack(entries))
  return count
end


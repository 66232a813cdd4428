-- Returns the end of a message, as message.ParseEnd reads it. The topic begins at that place of the stored message;
-- tries are its attempts.
local function told(kind, due_ms, tries, stored, at, detail)
  local topic, begun = topic_of(stored, at), string.match(tries, '^%d+ (%d+)') or 0
  return kind .. due_ms .. string.format(' %d %d:', begun + 1, #topic) .. topic .. detail
end

-- Records the ends of messages, {member, end}*, in a queue that keeps a history: limits are how many, and for how
-- many ms. Call it before the script writes anything else: then a Redis at its memory limit refuses it, and it
-- takes no memory that others need. Its errors are never the script's. If there are too many ends, or they are too
-- old, it removes one and a half times as many as it adds.
local function remember(ended, ends, limits, now_ms, list)
  if #list == 0 then return end
  pcall(function()
    local most, age_ms = string.match(limits, '^(%d+) (%d+)$')
    local at, scores, room = string.format('%d', now_ms), {}, math.ceil(#list * 3 / 4)
    for i = 1, #list, 2 do scores[i], scores[i + 1] = at, list[i] end
    redis.call('ZADD', ended, unpack(scores))
    -- A value this long makes a small hash a table: in a list, each search would scan all of it.
    redis.call('HSET', ends, '', string.rep(' ', 65), unpack(list))
    redis.call('HDEL', ends, '')
    local old = redis.call('ZRANGEBYSCORE', ended, '-inf', string.format('(%d', now_ms - age_ms), 'LIMIT', '0', string.format('%d', room))
    local many = math.min(redis.call('ZCARD', ended) - most, room)
    if many > #old then old = redis.call('ZRANGE', ended, '0', string.format('%d', many - 1)) end
    if #old > 0 then
      redis.call('ZREM', ended, unpack(old))
      redis.call('HDEL', ends, unpack(old))
    end
  end)
end


-- Returns the topic of a stored message, given the place of the topic's length.
local function topic_of(stored, at)
  local length, start = number(stored, at)
  return string.sub(stored, start, start + length - 1)
end


-- Returns the topic of a stored message, given the place of the topic's length.
local function topic_of(stored, at)
  local length, start = string.byte(stored, at) or 0, at + 1
  if length > 127 then length, start = length % 128 + (string.byte(stored, start) or 0) * 128, start + 1 end
  return string.sub(stored, start, start + length - 1)
end


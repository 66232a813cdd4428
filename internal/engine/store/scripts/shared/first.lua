-- Returns where the 13 digits of the header delay-first-at begin in a stored message, or nil: it comes first of all
-- headers but the tags and the uid; see message.Encode.
-- CALLS nothing.
local function first_at(stored)
  local length, at = number(stored, 31)
  at = at + length + 1 -- behind the topic and the number of headers
  for _ = 1, math.min(string.byte(stored, at - 1) or 0, 3) do
    length, at = number(stored, at)
    local name = string.sub(stored, at, at + length - 1)
    length, at = number(stored, at + length)
    if name == 'delay-first-at' then return at end
    at = at + length
  end
end

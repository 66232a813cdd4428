-- Returns the number at that place of a stored message, of one byte or two, and the place behind it.
local function number(stored, from)
  local low = string.byte(stored, from) or 0
  if low < 128 then return low, from + 1 end
  return low % 128 + (string.byte(stored, from + 1) or 0) * 128, from + 2
end


-- Returns where the header delay-uid of a stored message is, or would be: before all headers but the tags; whether it is there; and where
-- the number of its headers is, and that number.
-- CALLS nothing.
local function find_uid(stored)
  local length, at = number(stored, 31)
  local count_at = at + length
  local count = string.byte(stored, count_at) or 127
  at = count_at + 1
  local others = count -- After them comes the body, which may look like a header.
  if others > 0 and string.sub(stored, at, at + 10) == '\10delay-tags' then
    length, at = number(stored, at + 11)
    at, others = at + length, others - 1
  end
  return at, others > 0 and string.sub(stored, at, at + 9) == '\9delay-uid', count_at, count
end

-- Returns the token under which a stored message was created.
-- CALLS nothing.
local function first_token(stored)
  local at, is_there = find_uid(stored)
  if not is_there then return string.sub(stored, 15, 30) end
  local length, from = number(stored, at + 10)
  return string.sub(stored, from, from + length - 1)
end

-- Returns the stored message under another token: its first token stays as the header delay-uid, and names the message to
-- consumers; see message.UID.
-- CALLS nothing.
local function renamed(stored, token)
  local first = string.sub(stored, 15, 30)
  if first == token then return stored end
  local at, is_there, count_at, count = find_uid(stored)
  local head = string.sub(stored, 1, 14) .. token
  -- No message has as many headers, unless somebody else wrote it.
  if is_there or count > 126 then
    return head .. string.sub(stored, 31)
  end
  if string.find(first, '[^!-~]') then -- Somebody wrote it into a row, and no header may hold it.
    first = string.gsub(first, '.', function(byte) return string.format('%02x', string.byte(byte)) end)
  end
  return head .. string.sub(stored, 31, count_at - 1) .. string.char(count + 1)
    .. string.sub(stored, count_at + 1, at - 1) .. '\9delay-uid' .. string.char(#first) .. first .. string.sub(stored, at)
end

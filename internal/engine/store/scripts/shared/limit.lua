-- Returns the topics that the caller may touch, {topic: true}, from a list in which each follows its length and a colon; nil
-- for an empty list: it may touch all. A message whose topic cannot be read belongs to none of them.
local function limit(list)
  local topics, at = list ~= '' and {} or nil, 1
  while at <= #list do
    local _, stop, length = string.find(list, '^(%d+):', at)
    topics[string.sub(list, stop + 1, stop + length)] = true
    at = stop + length + 1
  end
  if topics then topics[''] = nil end
  return topics
end


-- Reports whether a run may take effect now, by its span: two instants of Redis' clock, with a space between them.
local function within(span, now_ms)
  local from_ms, to_ms = string.match(span, '^(%-?%d+) (%-?%d+)')
  return now_ms >= from_ms + 0 and now_ms <= to_ms + 0
end


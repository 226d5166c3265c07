-- INSPECT (protocol §6): the holders and the waiters.
-- KEYS     slots, open, ends, line, c0, c1
-- ARGV     guard
-- RETURNS  {version or -1, limit, bits, TIME µs, number of waiters, {slot, entry, ms left, counter, …},
--          {entry, ticket, …}}: the first 100 of each
local open = redis.call('GET', KEYS[2])
-- insert shared/guard.lua
-- Defined by known.lua, which is inserted below.
local ms, now, max_ttl, lasts, version, limit, bits, slot, ticket, till, waits, ends
local look, first_end, purge, settle, used, is_taken, next_free, gate, hold, prolong, free, counter, mint

local function obey()
  local why = look('')
  if why then
    return why
  end
  purge()
  local holders, waiters = {}, {}
  local one, last = 0, #bits * 8
  while one < last and #holders < 400 do
    -- Skips bytes in which all slots are free.
    local at = one % 8 == 0 and string.find(bits, '[^%z]', one / 8 + 1)
    one = one % 8 > 0 and one or at and (at - 1) * 8 or last
    if one < last and is_taken(one) then
      local entry = redis.call('HGET', KEYS[1], one)
      local ending = entry and string.match(redis.call('HGET', KEYS[1], entry) or '', '^%d+ %d+ (%d+)$')
      local c, why_not = counter(one)
      if not c then
        return why_not
      end
      local last_word = #holders
      holders[last_word + 1], holders[last_word + 2] = one, entry or ''
      holders[last_word + 3], holders[last_word + 4] = math.max(0, (ending or ms) - ms), c
    end
    one = one + 1
  end
  for i, word in ipairs(redis.call('ZRANGE', KEYS[4], 0, 99, 'WITHSCORES')) do
    waiters[i] = i % 2 == 0 and tonumber(word) or word
  end
  return { version or -1, limit or 0, bits, now, redis.call('ZCARD', KEYS[4]), holders, waiters }
end
-- insert slots/known.lua
return obey()

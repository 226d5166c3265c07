-- RESIZE (protocol §6): changes the limit, if the new one beats the one that stands.
-- KEYS     slots, open, ends, line
-- ARGV     kept ms, version, limit, guard
-- RETURNS  {version, limit} that stands now
local open = redis.call('GET', KEYS[2])
-- insert shared/guard.lua
-- Defined by known.lua and line.lua, which are inserted below.
local ms, now, max_ttl, lasts, version, limit, bits, slot, ticket, till, waits, ends
local look, first_end, purge, settle, used, is_taken, next_free, gate, hold, prolong, free, counter, mint
local asks, line, leave, register, fall_back, sweep, call, call_new

local function obey()
  local why = look('')
  if why then
    return why
  end
  purge()
  local new = settle(ARGV[2], ARGV[3])
  if new then
    line()
    call_new(new)
  end
  return { version, limit }
end
-- insert slots/known.lua
function line()
-- insert slots/line.lua
end
local keys = { 1, 3, 4 }
-- insert shared/obey.lua

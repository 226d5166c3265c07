-- REPAIR (protocol §6): puts the slot back for a holder that a majority still has, unless another entry has the slot or
-- it is beyond the limit. If no limit stands, the slot is put back, and no limit is made.
-- KEYS     slots, open, ends, line, c0, c1
-- ARGV     kept ms, entry, slot, ttl ms, token, guard
-- RETURNS  1; 0 if another entry has it, if this entry has another slot, or if it is beyond the limit
local open = redis.call('GET', KEYS[2])
-- insert shared/guard.lua
-- Defined by known.lua and line.lua, which are inserted below.
local ms, now, max_ttl, lasts, version, limit, bits, slot, ticket, till, waits, ends
local look, first_end, purge, settle, used, is_taken, next_free, gate, hold, prolong, free, counter, mint
local asks, line, leave, register, fall_back, sweep, call, call_new

local function obey()
  local entry, one, ttl, token = ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
  local why = look(entry)
  if why then
    return why
  end
  purge(entry)
  if (limit and one >= limit) or (slot and slot ~= one) or (not slot and is_taken(one)) then
    return 0
  end
  local c, field = counter(one)
  if not c then
    return field
  end
  -- The counter is written first: a slot that was held without it could be followed by a smaller token.
  if c < token then
    -- The limit of a RAISE. RAISE stops at it; a REPAIR that did so would leave a counter below the token.
    if token > now + (60000 + max_ttl) * 1000 then
      return redis.error_reply('AHEAD the token is further ahead than a counter may be')
    end
    redis.call('HSET', KEYS[5], field, ARGV[5])
  end
  if slot then
    prolong(entry, ttl)
    return 1
  end
  hold(entry, one, waits and ticket or 0, ms + ttl, not ends)
  used(false)
  if waits then
    line()
    leave(entry, true)
  end
  return 1
end
-- insert slots/known.lua
function line()
-- insert slots/line.lua
end
local keys = { 1, 3, 4 }
-- insert shared/obey.lua

-- YIELD (protocol §6): frees the slot of the entry, and puts it back into the queue. Nobody is told.
-- KEYS     slots, open, ends, line
-- ARGV     kept ms, entry, place: ticket, S ms, life ms, channel; guard
-- RETURNS  1
local open = redis.call('GET', KEYS[2])
-- insert shared/guard.lua
-- Defined by known.lua and line.lua, which are inserted below.
local ms, now, max_ttl, lasts, version, limit, bits, slot, ticket, till, waits, ends
local look, first_end, purge, settle, used, is_taken, next_free, gate, hold, prolong, free, counter, mint
local asks, line, leave, register, fall_back, sweep, call, call_new

local function obey()
  local entry = ARGV[2]
  local why = look(entry)
  if why then
    return why
  end
  if slot then
    free(slot, entry)
  end
  if ARGV[5] ~= '0' then
    -- It keeps the ticket with which it came, or a greater one that it has heard of since.
    local its = waits and ticket or ARGV[3]
    if not waits and ticket and tonumber(ticket) > tonumber(its) then
      its = ticket
    end
    line()
    register(entry, its, ARGV[4], ARGV[5], ARGV[6], redis.call('ZCARD', KEYS[4]) == 0)
  end
  return 1
end
-- insert slots/known.lua
function line()
-- insert slots/line.lua
end
local keys = { 1, 3, 4 }
-- insert shared/obey.lua

-- RELEASE (protocol §6): frees the slot of the entry, or takes the entry out of the queue.
-- KEYS     slots, open, ends, line
-- ARGV     kept ms, entry, slot that is kept or nothing, guard
-- RETURNS  1; 0 if the entry had none; -1, done or not, if this memory may not vote
-- The guard decides the answer, and whether anybody is told. The release happens in any case.
local admitted = redis.call('GET', KEYS[2]) == ARGV[#ARGV]
-- Defined by known.lua and line.lua, which are inserted below.
local ms, now, max_ttl, lasts, version, limit, bits, slot, ticket, till, waits, ends
local look, first_end, purge, settle, used, is_taken, next_free, gate, hold, prolong, free, counter, mint
local asks, line, leave, register, fall_back, sweep, call, call_new

local function obey()
  local entry = ARGV[2]
  -- In a key of another type the entry has nothing. Any other failure must not look like that.
  local why = look(entry)
  if why and not string.find(why.err, '^WRONGTYPE') then
    return why
  end
  local left = not why and slot ~= tonumber(ARGV[3]) and slot
  local was_ours = left and till >= ms
  if left then
    free(left, entry)
  elseif waits and not why then
    redis.call('HDEL', KEYS[1], entry)
  end
  local function tell()
    -- A queue of another type prevents no release.
    local count = (left or waits) and redis.pcall('ZCARD', KEYS[4])
    if count and (type(count) == 'number' or not string.find(count.err, '^WRONGTYPE')) then
      if count ~= 0 then
        line()
      end
      local was_in_gate = count ~= 0 and waits and leave(entry, admitted)
      -- A waiter that leaves the gate may have been called to a slot that is still free.
      local open = left or was_in_gate and next_free(0)
      if count ~= 0 and open and admitted then
        call(open)
      end
      if admitted then
        used(false)
      end
    end
  end
  -- If that fails, the slot is free all the same. A repeated RELEASE would find nothing.
  local done, failure = pcall(tell)
  if not done and not left then
    return failure
  end
  return admitted and (was_ours and 1 or 0) or -1
end
-- insert slots/known.lua
function line()
-- insert slots/line.lua
end
return obey()

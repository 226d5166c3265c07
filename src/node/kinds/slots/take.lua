-- TAKE (protocol §6): takes a slot, if the entry may take one. Otherwise it takes a place in the queue, or
-- keeps its place.
-- KEYS     slots, open, ends, line, c0, c1
-- ARGV     kept ms, entry, version, limit, P (pick) or M (move), wanted slot (for a pick: step * limit + slot) or
--          nothing, ttl ms, p µs, place: ticket, S ms, life ms, channel; guard
-- RETURNS  {slot or -1, its counter, bits, version, 1 if the entry may take one, ticket, ms until one is free or -1};
--          {version, limit} if another limit stands
local open = redis.call('GET', KEYS[2])
-- insert shared/guard.lua
-- Defined by known.lua and line.lua, which are inserted below.
local ms, now, max_ttl, lasts, version, limit, bits, slot, ticket, till, waits, ends
local look, first_end, purge, settle, used, is_taken, next_free, gate, hold, prolong, free, counter, mint
local asks, line, leave, register, fall_back, sweep, call, call_new

local function obey()
  local entry, mode, want, ttl, p = ARGV[2], ARGV[5], tonumber(ARGV[6]), ARGV[7], ARGV[8]
  local alive_for = tonumber(ARGV[11])
  asks = entry
  local why = look(entry)
  if why then
    return why
  end
  purge(entry)
  local new = settle(ARGV[3], ARGV[4])
  if limit ~= tonumber(ARGV[4]) then
    return { version, limit }
  end
  local draw = want
  if mode == 'P' and want then
    want = want % limit
  end
  local is_free = want and want < limit and not is_taken(want)
  local left, token, may_take, swept = nil, nil, true, false

  if slot and mode == 'M' and is_free then
    -- The token is made first: if that fails, nothing is given up.
    token, why = mint(want, p)
    if not token then
      return why
    end
    left = slot
    hold(entry, want, ticket, ms + ttl)
    free(left)
    used(false)
    ends = first_end()
  elseif slot then
    prolong(entry, ttl)
    ends = first_end()
    token, why = counter(slot)
    if not token then
      return why
    end
  else
    if waits and mode == 'M' and alive_for > 0 and tonumber(ARGV[9]) > tonumber(ticket) then
      ticket = ARGV[9]
      line()
      fall_back(entry, ticket, ARGV[10], ARGV[11], ARGV[12])
    end
    -- Free slots belong to the living waiters in front. A waiter that was called and did not come is removed, so it
    -- does not block them. Nobody is called for what is free already: the waiter that was called for it gave it back.
    if alive_for > 0 and next_free(0) then
      line()
      swept = sweep()
    end
    local rank = waits and redis.call('ZRANK', KEYS[4], entry)
    local stands, tries = rank, not rank and alive_for == 0
    rank = rank or redis.call('ZCARD', KEYS[4])
    if tries and rank > 0 and next_free(0) then
      -- A dead waiter does not block an entry that only tries: call removes a waiter that nobody hears.
      line()
      call(next_free(0))
      rank = redis.call('ZCARD', KEYS[4])
    end
    local is_first = not stands and rank == 0
    if not stands then
      ticket = tonumber(ARGV[9])
      -- An entry that asks later stands behind, even if its clock is slow.
      local last = mode == 'P' and rank > 0 and tonumber(redis.call('ZRANGE', KEYS[4], -1, -1, 'WITHSCORES')[2])
      if last and last >= ticket and last <= 9007199254740991 then
        ticket = math.min(last + 1, 9007199254740991)
      end
      ticket = string.format('%.0f', ticket)
      if mode == 'M' and not tries then
        -- A ticket from another node brings it back to its place. Its exact rank beyond the gate does not matter.
        rank = #redis.call('ZRANGE', KEYS[4], '-inf', '(' .. ticket, 'BYSCORE', 'LIMIT', 0, gate())
      end
    end
    may_take = rank < gate()
    -- An entry that is not in the queue overtakes nobody in it.
    local overtakes = tries and rank > 0
    if not stands and not tries and rank > 0 then
      local free, before = next_free(0), rank
      while free and before > 0 do
        free, before = next_free(free + 1), before - 1
      end
      overtakes = not free
    end
    if not is_free and mode == 'P' and want then
      -- Each entry steps in its own way. If all took the next slot, they would crowd behind full ones.
      local one, step = want, 1 + math.floor(draw / limit) % math.max(1, limit - 1)
      for _ = 1, 32 do
        one = (one + step) % limit
        if not is_taken(one) then
          break
        end
      end
      want = next_free(one) or next_free(0)
      is_free = want
    end
    if is_free and may_take and not overtakes then
      token, why = mint(want, p)
      if not token then
        return why
      end
      hold(entry, want, ticket, ms + ttl, not ends)
      used(false)
      ends = math.min(ends or till, till)
      if stands then
        line()
        leave(entry, true)
      end
    elseif alive_for > 0 then
      line()
      register(entry, ticket, ARGV[10], ARGV[11], ARGV[12], is_first)
    elseif not stands then
      ticket = 0
    end
  end

  -- Each slot that has become free is called out once.
  if left then
    line()
    call(left)
  end
  if new then
    line()
    call_new(new)
  elseif not slot and not token and swept and next_free(0) then
    call(next_free(0))
  end
  return { slot or -1, token or 0, bits, version, may_take and 1 or 0, tonumber(ticket),
    ends and math.max(0, ends + 1 - ms) or -1 }
end
-- insert slots/known.lua
function line()
-- insert slots/line.lua
end
local keys = { 1, 3, 4 }
-- insert shared/obey.lua

-- TAKE (protocol §6): takes a slot, if one may be taken; else a place in line, or keeps it.
-- KEYS     slots, open, ends, line, c0, c1
-- ARGV     kept ms, entry, version, limit, P (pick) or M (move), wanted slot (of a pick: step * limit + slot) or
--          nothing, ttl ms, p µs, place: ticket, S ms, life ms, channel; guard
-- RETURNS  {slot or -1, its counter, bits, version, 1 where we may take, ticket, ms until one is free or -1}; where
--          another limit stands {version, limit}
local open = redis.call('GET', KEYS[2])
-- insert shared/guard.lua
-- What stands below, in known.lua and line.lua.
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
    -- Minted first: nothing is given up where that fails.
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
    -- What is free is theirs who stand in front, if they live. Nobody is called: who was called gave it back.
    if alive_for > 0 and next_free(0) then
      line()
      swept = sweep()
    end
    local rank = waits and redis.call('ZRANK', KEYS[4], entry)
    local stands, tries = rank, not rank and alive_for == 0
    rank = rank or redis.call('ZCARD', KEYS[4])
    if tries and rank > 0 and next_free(0) then
      -- The dead do not stand in the way of who only tries: whoever is called and not heard of is out of line.
      line()
      call(next_free(0))
      rank = redis.call('ZCARD', KEYS[4])
    end
    local is_first = not stands and rank == 0
    if not stands then
      ticket = tonumber(ARGV[9])
      -- Who asks later stands behind, whatever the clocks say.
      local last = mode == 'P' and rank > 0 and tonumber(redis.call('ZRANGE', KEYS[4], -1, -1, 'WITHSCORES')[2])
      if last and last >= ticket and last <= 9007199254740991 then
        ticket = math.min(last + 1, 9007199254740991)
      end
      ticket = string.format('%.0f', ticket)
      if mode == 'M' and not tries then
        -- With a ticket from elsewhere it comes back to its place. Beyond the gate it does not matter which.
        rank = #redis.call('ZRANGE', KEYS[4], '-inf', '(' .. ticket, 'BYSCORE', 'LIMIT', 0, gate())
      end
    end
    may_take = rank < gate()
    -- Who is not in line overtakes nobody there.
    local overtakes = tries and rank > 0
    if not stands and not tries and rank > 0 then
      local free, before = next_free(0), rank
      while free and before > 0 do
        free, before = next_free(free + 1), before - 1
      end
      overtakes = not free
    end
    if not is_free and mode == 'P' and want then
      -- Each goes a way of its own: if all took the next one, they would crowd behind whatever is full.
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

  -- Each slot that is free for them now, once.
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
return obey()

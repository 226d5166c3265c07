-- WRITE (protocol §4): takes the lock alone, if nobody has it and it is not kept for readers. A writer that waits and
-- is refused keeps new readers out.
-- KEYS     lock, open, window, readers, writers, wakes, c0, c1
-- ARGV     counter field, entry, ttl ms, p µs, the wait's entry or nothing, life ms, channel or nothing, guard
-- RETURNS  the counter, if granted; {ms until that may change, counter, text of the entry that is against it or nil}
local seen = redis.call('MGET', KEYS[2], KEYS[1], KEYS[3])
local open = seen[1]
-- insert shared/guard.lua
local max_ttl = string.match(guard, '^%d+')
-- The fast path, which is the usual one: nobody has the lock, and p is the next token.
if not seen[2] and not seen[3] and redis.pcall('ZCARD', KEYS[4]) == 0 then
  local read, time, p = redis.call('HMGET', KEYS[7], ARGV[1], '_'), redis.call('TIME'), tonumber(ARGV[4])
  local c = tonumber(read[1] or redis.call('HGET', KEYS[8], ARGV[1]) or 0)
  local now, begun = time[1] * 1000000 + time[2], read[2] and tonumber(read[2])
  if c and c >= 0 and c % 1 == 0 and c < p and p <= math.min(now + max_ttl * 1000, 9007199254740991)
    and begun and now - begun <= 172800000000
    and redis.call('SET', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[3]) then
    local counted = redis.pcall('HSET', KEYS[7], ARGV[1], ARGV[4])
    if type(counted) == 'number' then
      return p
    end
    -- A lock without its counter could be followed by a smaller token.
    redis.call('DEL', KEYS[1])
    return counted
  end
end
-- Defined by known.lua, which is inserted below.
local now, ms, look_at_clock, till, first, last, put, counter, mint, bring, wants_to_hear, let_in, wake

local function obey()
  look_at_clock()
  local c, begun = counter(KEYS[7], KEYS[8], ARGV[1])
  if not c then
    return begun
  end
  if seen[2] == ARGV[2] then
    return c
  end
  local left, against = redis.call('PTTL', KEYS[1]), seen[2]
  if left == -2 then
    against, left = last(KEYS[4])
    left = left and left - ms
  end
  -- Readers that were kept out come first.
  if not left and seen[3] then
    left = redis.call('PTTL', KEYS[3])
  end
  if left then
    if ARGV[5] ~= '' then
      put(KEYS[5], ARGV[5], ARGV[6])
      wants_to_hear(KEYS[6], ARGV[5], ARGV[7], ARGV[6])
    end
    return { left, c, against and string.sub(against, 1, 224) }
  end
  local token, why = mint(KEYS[7], KEYS[8], ARGV[1], ARGV[4], c, begun)
  if not token then
    return why
  end
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  -- Readers that are still in the set have ended. They are removed after SET: after a DEL, a full server would grant
  -- the lock. If they stay, they count as absent.
  redis.pcall('DEL', KEYS[4])
  return token
end
-- insert rwlock/known.lua
local lasts, keys = max_ttl, { 5, 6 }
-- insert shared/obey.lua

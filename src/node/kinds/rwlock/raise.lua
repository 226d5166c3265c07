-- RAISE (protocol §4): brings the counter up to the token, if the entry has the lock or a share of it. The limit is
-- that of a RAISE of a mutex.
-- KEYS     lock, open, readers, c0, c1
-- ARGV     counter field, entry, token, guard
-- RETURNS  the counter; -1 if the entry has neither
local seen = redis.call('MGET', KEYS[2], KEYS[1])
local open = seen[1]
-- insert shared/guard.lua
-- Defined by known.lua, which is inserted below.
local now, ms, max_ttl, look_at_clock, till, first, last, put, counter, mint, bring, wants_to_hear, let_in, wake

local function obey()
  look_at_clock()
  if seen[2] ~= ARGV[2] and not till(KEYS[3], ARGV[2]) then
    return -1
  end
  local c, why = counter(KEYS[4], KEYS[5], ARGV[1])
  if not c then
    return why
  end
  local token = math.min(tonumber(ARGV[3]), now + (60000 + max_ttl) * 1000)
  if c < token then
    redis.call('HSET', KEYS[4], ARGV[1], string.format('%.0f', token))
    return token
  end
  return c
end
-- insert rwlock/known.lua
return obey()

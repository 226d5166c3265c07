-- EXTEND (protocol §4): prolongs what the entry has. As a reader's it makes a share of a lock that the entry has alone.
-- KEYS     lock, open, readers, refused, window, wakes
-- ARGV     entry, ttl ms, window ms, r or w, guard
-- RETURNS  1; 0, where the entry has none
local seen = redis.call('MGET', KEYS[2], KEYS[1])
local open = seen[1]
-- insert shared/guard.lua
-- What stands below, in known.lua.
local now, ms, max_ttl, look_at_clock, till, first, last, put, counter, mint, bring, wants_to_hear, let_in, wake

local function obey()
  local entry, ttl, ours = ARGV[1], ARGV[2], seen[2] == ARGV[1]
  if ARGV[4] == 'w' then
    -- GT: never shortens. A key that is gone stays gone.
    return ours and redis.call('PEXPIRE', KEYS[1], ttl, 'GT') and 1 or 0
  end
  look_at_clock()
  local at = till(KEYS[3], entry)
  if not at and not ours then
    return 0
  end
  local left = ours and redis.call('PTTL', KEYS[1]) or 0
  -- A full server permits these, and with them all that comes behind.
  if ours then
    redis.call('DEL', KEYS[1])
  else
    redis.call('PEXPIRE', KEYS[3], 2 * ttl, 'GT')
  end
  put(KEYS[3], entry, math.max(left, ttl))
  if ours then
    let_in(KEYS[4], KEYS[5], ARGV[3])
    wake(KEYS[6])
  end
  return 1
end
-- insert rwlock/known.lua
return obey()

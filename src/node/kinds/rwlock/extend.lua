-- EXTEND (protocol §4): prolongs what the entry has. EXTEND of a reader turns the lock of a writer into a share of it.
-- KEYS     lock, open, readers, refused, window, wakes
-- ARGV     entry, ttl ms, window ms, r or w, guard
-- RETURNS  1; 0 if the entry has nothing
local seen = redis.call('MGET', KEYS[2], KEYS[1])
local open = seen[1]
-- insert shared/guard.lua
-- Defined by known.lua, which is inserted below.
local now, ms, max_ttl, look_at_clock, till, first, last, put, counter, mint, bring, wants_to_hear, let_in, wake

local function obey()
  local entry, ttl, ours = ARGV[1], ARGV[2], seen[2] == ARGV[1]
  if ARGV[4] == 'w' then
    -- GT never shortens the time, and does not bring back a key that is gone.
    return ours and redis.call('PEXPIRE', KEYS[1], ttl, 'GT') and 1 or 0
  end
  look_at_clock()
  local at = till(KEYS[3], entry)
  if not at and not ours then
    return 0
  end
  local left = ours and redis.call('PTTL', KEYS[1]) or 0
  -- A full server permits PEXPIRE, and then every write after it.
  if ours then
    redis.call('PEXPIRE', KEYS[1], ttl, 'GT')
  else
    redis.call('PEXPIRE', KEYS[3], 2 * ttl, 'GT')
  end
  -- The writer has the lock until its share stands: if that cannot be written, nobody else gets in.
  put(KEYS[3], entry, math.max(left, ttl))
  if ours then
    redis.call('DEL', KEYS[1])
    let_in(KEYS[4], KEYS[5], ARGV[3])
    wake(KEYS[6])
  end
  return 1
end
-- insert rwlock/known.lua
local lasts, keys = max_ttl, { 3 }
-- insert shared/obey.lua

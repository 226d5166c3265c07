-- REPAIR (protocol §4): puts back what the entry had, if nobody is against it.
-- KEYS     lock, open, evicted, readers, wakes, c0, c1
-- ARGV     counter field, entry, ttl ms, token, r or w, guard
-- RETURNS  1; 0 if somebody is against it, or if it was evicted
local seen = redis.call('MGET', KEYS[2], KEYS[1], KEYS[3])
local open = seen[1]
-- insert shared/guard.lua
-- Defined by known.lua, which is inserted below.
local now, ms, max_ttl, look_at_clock, till, first, last, put, counter, mint, bring, wants_to_hear, let_in, wake

local function obey()
  look_at_clock()
  local entry, ttl, left = ARGV[2], ARGV[3], redis.call('PTTL', KEYS[1])
  local ours, writes = seen[2] == entry, ARGV[5] == 'w'
  if seen[3] or (left ~= -2 and not ours) or (writes and first(KEYS[4])) then
    return 0
  end
  -- The counter is written first: a lock that stood without it could be followed by a smaller token.
  local why = bring(KEYS[6], KEYS[7], ARGV[1], ARGV[4])
  if why then
    return why
  end
  if writes then
    if ours then
      redis.call('PEXPIRE', KEYS[1], ttl, 'GT')
    else
      redis.call('SET', KEYS[1], entry, 'PX', ttl)
    end
    return 1
  end
  -- As in EXTEND: the lock stands until the share does.
  if ours then
    redis.call('PEXPIRE', KEYS[1], ttl, 'GT')
  end
  put(KEYS[4], entry, math.max(ours and left or 0, ttl))
  if ours then
    redis.call('DEL', KEYS[1])
    wake(KEYS[5])
  end
  return 1
end
-- insert rwlock/known.lua
local lasts, keys = max_ttl, { 4 }
-- insert shared/obey.lua

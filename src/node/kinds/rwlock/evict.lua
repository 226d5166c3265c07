-- EVICT: frees the lock, no matter who holds it, and removes the waiters.
-- KEYS     lock, open, evicted, readers, writers, refused, window, wakes
-- ARGV     guard
-- RETURNS  {number of holders, the entries of the first 16 of them}
local seen = redis.call('MGET', KEYS[2], KEYS[1], KEYS[3])
local open = seen[1]
-- insert shared/guard.lua
-- Defined by known.lua, which is inserted below.
local now, ms, max_ttl, look_at_clock, till, first, last, put, counter, mint, bring, wants_to_hear, let_in, wake

local function obey()
  look_at_clock()
  local held = redis.call('ZRANGE', KEYS[4], '+inf', ms, 'BYSCORE', 'REV')
  if seen[2] then
    table.insert(held, 1, string.sub(seen[2], 1, 224))
  end
  -- This is the first write, and it happens even if nobody holds the lock. A script whose first write is DEL works at
  -- maxmemory.
  redis.call('DEL', KEYS[1], KEYS[4], KEYS[5], KEYS[6], KEYS[7])
  -- An eviction may still miss the lease on other nodes. Nothing is repaired here until every such lease is over.
  redis.call('SET', KEYS[3], '', 'PX', max_ttl * 2)
  wake(KEYS[8])
  local answer = { #held }
  for i = 1, math.min(#held, 16) do
    answer[1 + i] = held[i]
  end
  return answer
end
-- insert rwlock/known.lua
return obey()

-- INSPECT: the holders, their remaining time, the newest token, and the writers that wait.
-- KEYS     lock, open, readers, writers, c0, c1
-- ARGV     counter field, guard
-- RETURNS  {text in the lock or nil, PTTL, counter, {number of readers, entry, ms, …}, {number of waiting writers,
--          entry, ms, …}}: the first 100 of each, those with the most time left first
local seen = redis.call('MGET', KEYS[2], KEYS[1])
local open = seen[1]
-- insert shared/guard.lua
-- Defined by known.lua, which is inserted below.
local now, ms, max_ttl, look_at_clock, till, first, last, put, counter, mint, bring, wants_to_hear, let_in, wake

local function all(key)
  local them = redis.call('ZRANGE', key, '+inf', ms, 'BYSCORE', 'REV', 'WITHSCORES')
  local answer = { #them / 2 }
  for i = 1, math.min(#them, 200), 2 do
    answer[#answer + 1] = them[i]
    answer[#answer + 1] = them[i + 1] - ms
  end
  return answer
end

local function obey()
  look_at_clock()
  local c, why = counter(KEYS[5], KEYS[6], ARGV[1])
  if not c then
    return why
  end
  return { seen[2], redis.call('PTTL', KEYS[1]), c, all(KEYS[3]), all(KEYS[4]) }
end
-- insert rwlock/known.lua
return obey()

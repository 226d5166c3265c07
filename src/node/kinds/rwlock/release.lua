-- RELEASE (protocol §4): frees whatever the entry has of the lock.
-- KEYS     lock, open, readers, writers, refused, window, wakes
-- ARGV     entry, who waits no more or nothing, window ms, or 0 of an attempt in vain, guard
-- RETURNS  1; 0, where nothing was ours; -1, done or not, where this memory may not vote
-- The guard decides the answer, never the deed, and whether anybody is told. Of an attempt in vain nobody is: who is told asks
-- at once, and would tell others by its own attempt in vain. What is written first is a removal, so that all
-- works at maxmemory.
local seen = redis.call('MGET', KEYS[2], KEYS[1], KEYS[5])
local admitted = seen[1] == ARGV[#ARGV]
-- Mostly nobody waits, and so there is nobody to tell or to let in. All else is the long way.
if not seen[3] and redis.pcall('ZCARD', KEYS[7]) == 0 and (ARGV[2] == '' or redis.pcall('ZCARD', KEYS[4]) == 0) then
  local freed = 0
  if seen[2] == ARGV[1] then
    freed = redis.call('DEL', KEYS[1])
  else
    local at = redis.pcall('ZSCORE', KEYS[3], ARGV[1])
    if type(at) == 'string' then
      local time = redis.call('TIME')
      redis.call('ZREM', KEYS[3], ARGV[1])
      freed = tonumber(at) >= time[1] * 1000 + math.floor(time[2] / 1000) and 1 or 0
    end
  end
  return admitted and freed or -1
end
-- What stands below, in known.lua.
local now, ms, max_ttl, look_at_clock, till, first, last, put, counter, mint, bring, wants_to_hear, let_in, wake

-- In a key of another type nobody is.
local function is_in(key, entry)
  return type(redis.pcall('ZSCORE', key, entry)) == 'string' and till(key, entry)
end

local function obey()
  look_at_clock()
  local entry, freed, tells, held = ARGV[1], 0, false, ARGV[3] ~= '0'
  if seen[2] == entry then
    freed = redis.call('DEL', KEYS[1])
    tells = held
    if admitted then
      let_in(KEYS[5], KEYS[6], ARGV[3])
    end
  elseif is_in(KEYS[3], entry) then
    freed = redis.call('ZREM', KEYS[3], entry)
    tells = held and not first(KEYS[3])
  end
  if ARGV[2] ~= '' and is_in(KEYS[4], ARGV[2]) then
    redis.call('ZREM', KEYS[4], ARGV[2])
    tells = tells or (not first(KEYS[4]) and redis.call('PTTL', KEYS[1]) == -2)
  end
  if tells and admitted then
    wake(KEYS[7])
  end
  return admitted and freed or -1
end
-- insert rwlock/known.lua
return obey()

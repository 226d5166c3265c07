-- RELEASE (protocol §4): frees the lock, or the share of it, that the entry has.
-- KEYS     lock, open, readers, writers, refused, window, wakes
-- ARGV     entry, the wait's entry, which waits no more, or nothing, window ms (0: the attempt was not won), guard
-- RETURNS  1; 0 if the entry had nothing; -1, done or not, if this memory may not vote
-- The guard decides the answer, and whether anybody is told. The release happens in any case. After an attempt that was
-- not won nobody is told: a waiter that is told asks at once, and would tell others when its own attempt fails. The
-- first write is a removal, so that all works at maxmemory.
local seen = redis.call('MGET', KEYS[2], KEYS[1], KEYS[5])
local admitted = seen[1] == ARGV[#ARGV]

-- The score of the entry. A key of another type holds no entry. Any other failure must not look like that.
local function score(key, entry)
  local at = redis.pcall('ZSCORE', key, entry)
  if type(at) == 'table' and not string.find(at.err, '^WRONGTYPE') then
    error(at)
  end
  return type(at) == 'string' and tonumber(at)
end

-- The fast path, which is the usual one: nobody waits, so there is nobody to tell or to let in.
if not seen[3] and redis.pcall('ZCARD', KEYS[7]) == 0 and (ARGV[2] == '' or redis.pcall('ZCARD', KEYS[4]) == 0) then
  local freed = 0
  if seen[2] == ARGV[1] then
    freed = redis.call('DEL', KEYS[1])
    -- A downgrade that failed halfway has left a share too.
    redis.pcall('ZREM', KEYS[3], ARGV[1])
  else
    local at = score(KEYS[3], ARGV[1])
    if at then
      local time = redis.call('TIME')
      redis.call('ZREM', KEYS[3], ARGV[1])
      freed = at >= time[1] * 1000 + math.floor(time[2] / 1000) and 1 or 0
    end
  end
  return admitted and freed or -1
end
-- Defined by known.lua, which is inserted below.
local now, ms, max_ttl, look_at_clock, till, first, last, put, counter, mint, bring, wants_to_hear, let_in, wake

local function is_in(key, entry)
  local at = score(key, entry)
  return at and at >= ms
end

local function obey()
  look_at_clock()
  local entry, freed, writes, held = ARGV[1], 0, seen[2] == ARGV[1], ARGV[3] ~= '0'
  if writes then
    freed = redis.call('DEL', KEYS[1])
    redis.pcall('ZREM', KEYS[3], entry)
  elseif is_in(KEYS[3], entry) then
    freed = redis.call('ZREM', KEYS[3], entry)
  end
  local function tell()
    local tells = held and freed == 1 and (writes or not first(KEYS[3]))
    if writes and admitted then
      let_in(KEYS[5], KEYS[6], ARGV[3])
    end
    if ARGV[2] ~= '' and is_in(KEYS[4], ARGV[2]) then
      redis.call('ZREM', KEYS[4], ARGV[2])
      tells = tells or (not first(KEYS[4]) and redis.call('PTTL', KEYS[1]) == -2)
    end
    if tells and admitted then
      wake(KEYS[7])
    end
  end
  -- If that fails, the entry has been freed all the same. A repeated RELEASE would find nothing.
  local done, why = pcall(tell)
  if not done and freed == 0 then
    return why
  end
  return admitted and freed or -1
end
-- insert rwlock/known.lua
return obey()

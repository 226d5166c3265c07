-- READ (protocol §4): takes a share of the lock, if no writer has it or waits for it.
-- KEYS     lock, open, window, readers, writers, refused, wakes, c0, c1
-- ARGV     counter field, entry, ttl ms, p µs, the wait's entry or nothing, life ms, channel or nothing, guard
-- RETURNS  the counter, if granted; {ms until that may change, counter, text of the entry that is against it or nil}
local seen = redis.call('MGET', KEYS[2], KEYS[1], KEYS[3])
local open = seen[1]
-- insert shared/guard.lua
-- The fast path, which is the usual one: no writer has the lock or waits, the readers are few, their key outlives this
-- reader too, and the counter is in c0. The slow path does everything else, and removes members that have ended.
if redis.call('PTTL', KEYS[1]) == -2 and redis.pcall('ZCARD', KEYS[5]) == 0 and redis.call('ZCARD', KEYS[4]) < 1000 then
  local life = redis.call('PTTL', KEYS[4])
  if life == -2 or life >= tonumber(ARGV[3]) then
    local c = tonumber(redis.call('HGET', KEYS[8], ARGV[1]) or 0)
    if c and c >= 1 and c <= 9007199254740992 and c % 1 == 0 then
      local time = redis.call('TIME')
      redis.call('ZADD', KEYS[4], 'GT', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[3], ARGV[2])
      local set = life ~= -2 or redis.pcall('PEXPIRE', KEYS[4], 2 * ARGV[3])
      if type(set) == 'table' then
        -- The set was just made, and would stay for ever.
        redis.call('DEL', KEYS[4])
        return set
      end
      return c
    end
  end
end
-- Defined by known.lua, which is inserted below.
local now, ms, max_ttl, look_at_clock, till, first, last, put, counter, mint, bring, wants_to_hear, let_in, wake

local function obey()
  look_at_clock()
  local c, begun = counter(KEYS[8], KEYS[9], ARGV[1])
  if not c then
    return begun
  end
  local entry, ttl, left, against = ARGV[2], ARGV[3]
  if not till(KEYS[4], entry) then
    left, against = redis.call('PTTL', KEYS[1]), seen[2]
    if left == -2 then
      left, against = nil, nil
      if not seen[3] then
        against, left = first(KEYS[5])
        left = left and left - ms
      end
    end
  end
  if left then
    if ARGV[5] ~= '' then
      redis.pcall('SET', KEYS[6], '', 'PX', ARGV[6])
      wants_to_hear(KEYS[7], ARGV[5], ARGV[7], ARGV[6])
    end
    return { left, c, against and string.sub(against, 1, 224) }
  end
  -- An epoch is never 0.
  if c == 0 then
    local why
    c, why = mint(KEYS[8], KEYS[9], ARGV[1], ARGV[4], c, begun)
    if not c then
      return why
    end
  end
  put(KEYS[4], entry, ttl)
  return c
end
-- insert rwlock/known.lua
local lasts, keys = max_ttl, { 4, 7 }
-- insert shared/obey.lua

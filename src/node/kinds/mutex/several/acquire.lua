-- ACQUIRE of several locks (protocol §8): takes all of them if all are free, otherwise none.
-- KEYS     open, time, waiting, locks, c0, c1
-- ARGV     entry, ttl ms, p µs, guard
-- RETURNS  the counter of all, if granted; if another entry has one of them: {index of the lock that is held for
--          longest, PTTL, the greatest counter, text in that lock or nil}
local seen = redis.call('MGET', unpack(KEYS, 1, #KEYS - 2))
local open = seen[1]
-- insert shared/guard.lua
local max_ttl = string.match(guard, '^%d+')
local n, c0, c1, from = #KEYS - 5, KEYS[#KEYS - 1], KEYS[#KEYS], #KEYS[1] - 3
-- By lock: {PTTL, counter, text}, if it has waiters and is not free for this entry.
local against = {}
if seen[3] then
  local waiting = seen[3]
-- insert mutex/common.lua
-- insert mutex/tell.lua
-- insert mutex/line.lua
  for i = 1, n do
    local key = KEYS[i + 3]
    lock[key] = seen[i + 3]
    if has_line(key) then
      against[i] = behind(key, ARGV[3])
      if type(against[i]) == 'string' then
        return redis.error_reply(against[i])
      end
    end
  end
end
local fields, held = {}, next(against)
for i = 1, n do
  fields[i] = string.sub(KEYS[i + 3], from)
  held = held or seen[i + 3]
end
fields[n + 1] = '_'
local read, greatest = redis.call('HMGET', c0, unpack(fields)), 0
for i = 1, n do
  -- A counter in c0 was made from the one in c1 and is not less, so c1 is read only if c0 has none.
  local c = tonumber(read[i] or redis.call('HGET', c1, fields[i]) or 0)
  -- insert shared/counter.lua
  greatest = c > greatest and c or greatest
end
-- TIME as the handshake left it, and the floor, which is capped as in ACQUIRE of one lock.
local floor, ahead = tonumber(ARGV[3]), max_ttl * 1000
local now = tonumber(seen[2] or 0)
if not now or floor > now + ahead then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local token = math.max(greatest + 1, math.min(floor, now + ahead))
local exhausted, taken = token > 9007199254740991, 0
-- This is the first write. It fails if the server is full or a replica; without a right a later one may fail too.
while taken < n and not (held or exhausted) do
  if redis.call('SET', KEYS[taken + 4], ARGV[1], 'NX', 'PX', ARGV[2]) then
    taken = taken + 1
  else
    -- A key of another type belongs to somebody too.
    held = true
    if taken > 0 then
      redis.call('DEL', unpack(KEYS, 4, taken + 3))
    end
  end
end
if held or exhausted then
  local which, longest
  for i = 1, n do
    local left = against[i] and against[i][1] or redis.call('PTTL', KEYS[i + 3])
    if left ~= -2 and (not which or longest ~= -1 and (left == -1 or left > longest)) then
      which, longest = i, left
    end
  end
  if not which then
    return redis.error_reply('EXHAUSTED the counter is at 2^53 - 1')
  end
  local whose = seen[which + 3]
  if against[which] then
    whose = against[which][3]
  end
  -- The longest text of this library is shorter (protocol §1), so only a foreign one is cut.
  return { which - 1, longest, greatest, whose and string.sub(whose, 1, 224) }
end
-- Usually p is the token and is written as it came, because formatting costs half a microsecond.
local written = token == floor and ARGV[3] or string.format('%.0f', token)
local begun = read[n + 1] and tonumber(read[n + 1])
local counters = {}
for i = 1, n do
  counters[2 * i - 1], counters[2 * i] = fields[i], written
end
local function count()
  -- insert shared/rotate.lua
  redis.call('HSET', c0, unpack(counters))
end
local done, why = pcall(count)
if not done then
  -- Locks without their counters could be followed by a smaller token.
  redis.call('DEL', unpack(KEYS, 4, n + 3))
  return type(why) == 'string' and redis.error_reply(why) or why
end
return token

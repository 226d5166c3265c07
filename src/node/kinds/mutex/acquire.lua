-- ACQUIRE (protocol §3): takes the lock if it is free.
-- KEYS     lock, open, time, c0, c1, waiting
-- ARGV     counter field, entry, ttl ms, p µs, guard
-- RETURNS  the counter, where granted; {PTTL, counter, text in the lock or nil}, where another holds; behind
--          these the last ticket of the line, where there is one
local seen = redis.call('MGET', KEYS[2], KEYS[3], KEYS[6])
local open = seen[1]
-- insert shared/guard.lua
local max_ttl = string.match(guard, '^%d+')
-- Where somebody waits for a lock on this node, it may be for this one: its last ticket.
local last = seen[3]
  and redis.pcall('ZRANGE', string.sub(KEYS[2], 1, -5) .. '@mutex-line:' .. string.sub(ARGV[1], 8), -1, -1, 'WITHSCORES')[2]
local held = last and redis.call('PTTL', KEYS[1]) ~= -2 or nil
if last and not held then
  local from, waiting, c0, c1 = #KEYS[2] - 3, seen[3], KEYS[4], KEYS[5]
-- insert mutex/common.lua
-- insert mutex/tell.lua
-- insert mutex/line.lua
  about(KEYS[1])
  local answer = behind(KEYS[1], ARGV[4])
  if answer then
    return type(answer) == 'string' and redis.error_reply(answer) or answer
  end
end
-- Somebody has it, or nobody who is alive waits.
-- The handshake leaves TIME behind every few seconds. It was never later than now: while p is below
-- the cap that follows from it, p is below the true cap as well, and asking for TIME is saved.
local floor, ahead = tonumber(ARGV[4]), max_ttl * 1000
local now = tonumber(seen[2] or 0)
if not now or floor > now + ahead then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local read = redis.call('HMGET', KEYS[4], ARGV[1], '_')
-- A counter in c0 was made from the one in c1 and is not less, so c1 is read only if c0 has none.
local c = tonumber(read[1] or redis.call('HGET', KEYS[5], ARGV[1]) or 0)
-- insert shared/counter.lua
-- The floor is capped, never ignored: ignored, one token was given out twice after a restart.
local token = math.max(c + 1, math.min(floor, now + ahead))
local begun = read[2] and tonumber(read[2])
local exhausted = token > 9007199254740991
-- The first write. It fails where the server is full or a replica; nothing after it fails.
if exhausted or held or not redis.call('SET', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[3]) then
  local left = redis.call('PTTL', KEYS[1])
  if exhausted and left == -2 then
    return redis.error_reply('EXHAUSTED the counter is at 2^53 - 1')
  end
  -- A key of another kind has no text. No entry of this library is longer than 138 bytes, so more is not worth sending.
  local holder = redis.pcall('GET', KEYS[1])
  -- Another client may have written a text that is not a ticket.
  last = held and tonumber(last)
  last = last and (last >= 0 and last <= 9007199254740991 and last or 0) or nil
  return { left, c, type(holder) == 'string' and string.sub(holder, 1, 160), last }
end
-- p is written as it came where it is the token, as it mostly is: formatting costs half a microsecond.
local written = token == floor and ARGV[4] or string.format('%.0f', token)
if begun and now - begun <= 172800000000 then
  redis.call('HSET', KEYS[4], ARGV[1], written)
else
  -- The counters are older than 2 days: they become the previous ones, and those are forgotten. By age,
  -- not by the calendar: that lost the order when a clock went back over the edge.
  if begun then
    redis.call('UNLINK', KEYS[5])
    redis.call('RENAME', KEYS[4], KEYS[5])
  end
  -- More than 64 bytes long, so that the hash is not kept as a listpack, which is searched field by field.
  redis.call('HSET', KEYS[4], '_', string.format('%-65.0f', now), ARGV[1], written)
end
return token

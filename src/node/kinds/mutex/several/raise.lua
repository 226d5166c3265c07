-- RAISE of several locks (protocol §8): brings every counter up to the token, if the entry has all of the locks. The
-- limit is that of a RAISE of one lock.
-- KEYS     open, locks, c0, c1
-- ARGV     entry, token, guard
-- RETURNS  the least of the counters; -1 if the entry does not have all of the locks
local seen = redis.call('MGET', unpack(KEYS, 1, #KEYS - 2))
local open = seen[1]
-- insert shared/guard.lua
local max_ttl = string.match(guard, '^%d+')
local n, c0, c1, from = #KEYS - 3, KEYS[#KEYS - 1], KEYS[#KEYS], #KEYS[1] - 3
local entry, fields = ARGV[1], {}
for i = 1, n do
  local text = seen[i + 1]
  -- The text of a lock that came through the queue is "entry seq ticket".
  if text ~= entry and string.sub(text or '', 1, #entry + 1) ~= entry .. ' ' then
    return -1
  end
  fields[i] = string.sub(KEYS[i + 1], from)
end
local time = redis.call('TIME')
local cap = (time[1] + 60) * 1000000 + time[2] + max_ttl * 1000
local token = math.min(tonumber(ARGV[2]), cap)
local written, least = string.format('%.0f', token), nil
local read, raised = redis.call('HMGET', c0, unpack(fields)), {}
for i = 1, n do
  -- A counter in c0 was made from the one in c1 and is not less, so c1 is read only if c0 has none.
  local c = tonumber(read[i] or redis.call('HGET', c1, fields[i]) or 0)
  -- insert shared/counter.lua
  if c < token then
    raised[#raised + 1] = fields[i]
    raised[#raised + 1] = written
    c = token
  end
  least = least and least < c and least or c
end
if #raised > 0 then
  redis.call('HSET', c0, unpack(raised))
end
return least

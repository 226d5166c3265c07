-- RAISE (protocol §3): brings the counter up to the token, if the lock is ours. Capped a minute beyond
-- where an ACQUIRE is: so far servers' clocks may differ, and one damaged counter does not travel.
-- KEYS     lock, open, c0, c1
-- ARGV     counter field, entry or entry and seq, token, guard
-- RETURNS  the counter; -1, where the lock is not ours
local seen = redis.call('MGET', KEYS[2], KEYS[1])
local open = seen[1]
-- insert shared/guard.lua
local max_ttl = string.match(guard, '^%d+')
-- One that came through the line is "entry seq ticket".
if seen[2] ~= ARGV[2] and string.sub(seen[2] or '', 1, #ARGV[2] + 1) ~= ARGV[2] .. ' ' then
  return -1
end
local time = redis.call('TIME')
local cap = (time[1] + 60) * 1000000 + time[2] + max_ttl * 1000
local token = math.min(tonumber(ARGV[3]), cap)
-- A counter in c0 was made from the one in c1 and is not less, so c1 is read only if c0 has none.
local c = tonumber(redis.call('HGET', KEYS[3], ARGV[1]) or redis.call('HGET', KEYS[4], ARGV[1]) or 0)
-- insert shared/counter.lua
if c < token then
  redis.call('HSET', KEYS[3], ARGV[1], string.format('%.0f', token))
  return token
end
return c

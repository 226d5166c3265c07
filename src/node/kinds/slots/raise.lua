-- RAISE (protocol §6): brings the slot's counter up to the token, if the entry has the slot. The limit is that of a
-- RAISE of a lock.
-- KEYS     slots, open, c0, c1
-- ARGV     kept ms, entry, slot, counter field, token, guard
-- RETURNS  the counter; -1 if the entry does not have the slot
local open = redis.call('GET', KEYS[2])
-- insert shared/guard.lua
local max_ttl = string.match(guard, '^%d+')
local slot, till = string.match(redis.call('HGET', KEYS[1], ARGV[2]) or '', '^(%d+) %d+ (%d+)$')
local time = redis.call('TIME')
if slot ~= ARGV[3] or tonumber(till) < time[1] * 1000 + math.floor(time[2] / 1000) then
  return -1
end
local cap = (time[1] + 60) * 1000000 + time[2] + max_ttl * 1000
local token = math.min(tonumber(ARGV[5]), cap)
-- A counter in c0 was made from the one in c1 and is not less, so c1 is read only if c0 has none.
local c = tonumber(redis.call('HGET', KEYS[3], ARGV[4]) or redis.call('HGET', KEYS[4], ARGV[4]) or 0)
-- insert shared/counter.lua
if c < token then
  redis.call('HSET', KEYS[3], ARGV[4], string.format('%.0f', token))
  return token
end
return c

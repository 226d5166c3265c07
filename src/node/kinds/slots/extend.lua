-- EXTEND (protocol §6): prolongs the slot, if it is ours.
-- KEYS     slots, open, ends, line
-- ARGV     kept ms, entry, slot, ttl ms, guard
-- RETURNS  1; 0, where the slot is not ours
local open = redis.call('GET', KEYS[2])
-- insert shared/guard.lua
-- How long what is known lives without use, in ms: kept, or the fleet's longest ttl, which the guard says.
local lasts = math.max(tonumber(ARGV[1]), tonumber(string.match(guard, '^%d+')))
local slot, ticket, till = string.match(redis.call('HGET', KEYS[1], ARGV[2]) or '', '^(%d+) (%d+) (%d+)$')
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
if slot ~= ARGV[3] or tonumber(till) < ms then
  return 0
end
-- Never shortened. PEXPIRE comes first: a full server permits it, and with it all that comes behind.
redis.call('PEXPIRE', KEYS[3], 4 * lasts)
till = math.max(tonumber(till), ms + ARGV[4])
redis.call('HSET', KEYS[1], ARGV[2], string.format('%s %s %.0f', slot, ticket, till))
redis.call('ZADD', KEYS[3], till, slot)
-- It was used: what is known lives on.
if redis.call('PTTL', KEYS[1]) < 3 * lasts then
  redis.call('PEXPIRE', KEYS[1], 4 * lasts)
  redis.call('PEXPIRE', KEYS[4], 4 * lasts)
end
return 1

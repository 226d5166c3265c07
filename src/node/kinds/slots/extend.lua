-- EXTEND (protocol §6): prolongs the slot, if the entry has it.
-- KEYS     slots, open, ends, line
-- ARGV     kept ms, entry, slot, ttl ms, guard
-- RETURNS  1; 0 if the entry does not have the slot
local open = redis.call('GET', KEYS[2])
-- insert shared/guard.lua
-- How long the keys live without use, in ms: kept, or the fleet's longest ttl, which the guard names, if that is
-- longer.
local lasts = math.max(tonumber(ARGV[1]), tonumber(string.match(guard, '^%d+')))
local slot, ticket, till = string.match(redis.call('HGET', KEYS[1], ARGV[2]) or '', '^(%d+) (%d+) (%d+)$')
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
if slot ~= ARGV[3] or tonumber(till) < ms then
  return 0
end
-- Never shortened. A full server permits PEXPIRE, and then every write after it. So PEXPIRE comes first.
redis.call('PEXPIRE', KEYS[3], 4 * lasts)
till = math.max(tonumber(till), ms + ARGV[4])
redis.call('HSET', KEYS[1], ARGV[2], string.format('%s %s %.0f', slot, ticket, till))
redis.call('ZADD', KEYS[3], till, slot)
-- The semaphore was used, so its keys live on.
if redis.call('PTTL', KEYS[1]) < 3 * lasts then
  redis.call('PEXPIRE', KEYS[1], 4 * lasts)
  redis.call('PEXPIRE', KEYS[4], 4 * lasts)
end
return 1

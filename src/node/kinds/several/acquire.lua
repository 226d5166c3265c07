-- ACQUIRE of several locks (protocol §8): takes all of them, if all are free; else none.
-- KEYS     open, time, waiting, locks, c0, c1
-- ARGV     entry, ttl ms, p µs, guard
-- RETURNS  the counter of all, where granted; {which of the locks is held for longest, PTTL, the greatest counter, text
--          in the lock or nil}, where another has one
local seen = redis.call('MGET', unpack(KEYS, 1, #KEYS - 2))
if seen[1] ~= ARGV[#ARGV] then
  return redis.error_reply('NOT_ADMITTED this memory may not vote')
end
local max_ttl = string.match(ARGV[#ARGV], '^%d+')
local n, c0, c1, from = #KEYS - 5, KEYS[#KEYS - 1], KEYS[#KEYS], #KEYS[1] - 3
-- By lock: {PTTL, counter, text}, where somebody waits for it.
local against = {}
if seen[3] then
  local waiting = seen[3]

-- JOIN (protocol §5): takes the lock if it is free and nobody waits before us; else a place in line, or keeps it.
-- Where it may only be the last, and somebody whose ticket is not less stands there or has the lock, it is answered as an ACQUIRE is.
-- KEYS     lock, open, waiting, c0, c1
-- ARGV     entry, ttl ms, p µs, place: seq, ticket, S ms, lock-delay ms, life ms, claim ms, channel; 1, where it may
--          only be the last, or 0; guard
-- RETURNS  {counter, seq}, where it is ours; {rank, PTTL, whose or nil, 1 where that is only reserved}; or
--          {PTTL, counter, whose or nil, last ticket, 1}, where it would not be the last
local seen = redis.call('MGET', KEYS[2], KEYS[1], KEYS[3])
if seen[1] ~= ARGV[#ARGV] then
  return redis.error_reply('NOT_ADMITTED this memory may not vote')
end
local prefix, rest = string.sub(KEYS[2], 1, -5), string.sub(KEYS[1], #KEYS[2] + 4)
local q, qh = prefix .. '@mutex-line:' .. rest, prefix .. '@mutex-waiters:' .. rest
local from, waiting, c0, c1 = #prefix + 1, seen[3], KEYS[4], KEYS[5]
local max_ttl = string.match(ARGV[#ARGV], '^%d+')

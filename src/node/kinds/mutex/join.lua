-- JOIN (protocol §5): takes the lock if it is free and nobody waits before us; else a place in line, or keeps it.
-- KEYS     lock, open, waiting, c0, c1
-- ARGV     max_ttl ms, entry, ttl ms, p µs, place: seq, ticket, S ms, lock-delay ms, life ms, claim ms, channel; guard
-- RETURNS  {counter, seq}, where it is ours; {rank, PTTL, whose or nil, 1 where that is only reserved}
local seen = redis.call('MGET', KEYS[2], KEYS[1], KEYS[3])
if seen[1] ~= ARGV[#ARGV] then
  return redis.error_reply('NOT_ADMITTED this memory may not vote')
end
local from, waiting, c0, c1, max_ttl = #KEYS[2] - 3, seen[3], KEYS[4], KEYS[5], ARGV[1]

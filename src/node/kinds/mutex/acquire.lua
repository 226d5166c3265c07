-- ACQUIRE (protocol §3): takes the lock if it is free.
-- KEYS     lock, open, time, c0, c1, waiting
-- ARGV     counter field, entry, ttl ms, p µs, guard
-- RETURNS  the counter, where granted; {PTTL, counter, text in the lock or nil}, where another holds; behind
--          these the last ticket of the line, where there is one
local seen = redis.call('MGET', KEYS[2], KEYS[3], KEYS[6])
if seen[1] ~= ARGV[5] then
  return redis.error_reply('NOT_ADMITTED this memory may not vote')
end
local max_ttl = string.match(ARGV[5], '^%d+')
-- Where somebody waits for a lock on this node, it may be for this one: its last ticket.
local last = seen[3]
  and redis.pcall('ZRANGE', string.sub(KEYS[2], 1, -5) .. '@mutex-line:' .. string.sub(ARGV[1], 8), -1, -1, 'WITHSCORES')[2]
local held = last and redis.call('PTTL', KEYS[1]) ~= -2 or nil
if last and not held then
  local from, waiting, c0, c1 = #KEYS[2] - 3, seen[3], KEYS[4], KEYS[5]

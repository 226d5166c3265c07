-- RELEASE (protocol §3): frees the lock, if it is ours, and leaves the line.
-- KEYS     lock, open, waiting
-- ARGV     entry, p µs, guard
-- RETURNS  1; 0, where the lock was not ours; -1, done or not, where this memory may not vote
-- The guard decides the answer, never the deed. DEL is the first write, so that it works at maxmemory.
-- MGET finds nothing in a key of another kind: that is somebody else's.
local seen = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
local text, entry, admitted = seen[1], ARGV[1], seen[2] == ARGV[3]
-- One that came through the line is "entry seq ticket".
local held = text == entry or text and string.byte(text, #entry + 1) == 32 and string.find(text, entry, 1, true) == 1
-- Where somebody waits for a lock on this node, it may be for this one.
local prefix = seen[3] and string.sub(KEYS[2], 1, -5)
local rest = prefix and string.sub(KEYS[1], #KEYS[2] + 4)
local q, qh = prefix and prefix .. '@mutex-line:' .. rest
local heads = q and redis.pcall('ZRANGE', q, 0, 1, 'WITHSCORES')
if not (heads and heads[1]) then
  local freed = held and redis.call('DEL', KEYS[1])
  return admitted and (freed or 0) or -1
end
-- Somebody does.
local from, waiting, c0, c1 = #prefix + 1, seen[3], prefix .. 'c0', prefix .. 'c1'
local max_ttl = string.match(ARGV[3], '^%d+') or 0

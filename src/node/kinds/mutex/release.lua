-- RELEASE (protocol §3): frees the lock, if it is ours.
-- KEYS     lock, open
-- ARGV     entry, guard
-- RETURNS  1; 0, where the lock was not ours; -1, done or not, where this memory may not vote
-- The guard decides the answer, never the deed. DEL is the first write, so that it works at maxmemory.
-- MGET finds nothing in a key of another kind: that is somebody else's.
local seen = redis.call('MGET', KEYS[1], KEYS[2])
local freed = seen[1] == ARGV[1] and redis.call('DEL', KEYS[1]) or 0
return seen[2] == ARGV[#ARGV] and freed or -1

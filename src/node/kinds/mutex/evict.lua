-- EVICT: frees the lock, no matter who holds it. A key of another type is left alone, because GET fails on it.
-- KEYS     lock, open, evicted
-- ARGV     guard
-- RETURNS  the text that was in it; 0 if nobody held it
local open = redis.call('GET', KEYS[2])
-- insert shared/guard.lua
local held = redis.call('GET', KEYS[1])
-- This is the first write, and it happens even if nobody holds the lock. A script whose first
-- write is DEL works at maxmemory.
redis.call('DEL', KEYS[1])
-- An eviction may still miss the lease on other nodes. Nothing is repaired here until every such lease is over.
redis.call('SET', KEYS[3], '', 'PX', string.match(guard, '^%d+') * 2)
-- The longest text of this library is shorter (protocol §1), so only a foreign one is cut.
return held and string.sub(held, 1, 224) or 0

-- EVICT: frees the lock, no matter who holds it. A key of another kind is left alone, by GET's own error.
-- KEYS     lock, open, evicted
-- ARGV     guard
-- RETURNS  what stood in it; 0, where nobody held it
local open = redis.call('GET', KEYS[2])
-- insert shared/guard.lua
local held = redis.call('GET', KEYS[1])
-- The first write, also where nobody holds it, so that all works at maxmemory.
redis.call('DEL', KEYS[1])
-- Until every lease that an eviction may still miss elsewhere is over, none is repaired here.
redis.call('SET', KEYS[3], '', 'PX', string.match(guard, '^%d+') * 2)
-- No entry of this library is longer than 138 bytes, so more is not worth sending.
return held and string.sub(held, 1, 160) or 0

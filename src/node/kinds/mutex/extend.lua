-- EXTEND (protocol §3): prolongs the lock, if it is ours.
-- KEYS     lock, open
-- ARGV     entry, ttl ms, guard
-- RETURNS  1; 0, where the lock is not ours
local seen = redis.call('MGET', KEYS[2], KEYS[1])
local open = seen[1]
-- insert shared/guard.lua
-- One that came through the line is "entry seq ticket".
if seen[2] ~= ARGV[1] and string.sub(seen[2] or '', 1, #ARGV[1] + 1) ~= ARGV[1] .. ' ' then
  return 0
end
-- GT: never shortens. A key that is gone stays gone.
redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')
return 1

-- EXTEND of several locks (protocol §8): prolongs all of them, if all are ours.
-- KEYS     open, locks
-- ARGV     entry, ttl ms, guard
-- RETURNS  1; 0, where not all of the locks are ours
local seen = redis.call('MGET', unpack(KEYS))
local open = seen[1]
-- insert shared/guard.lua
local entry = ARGV[1]
for i = 2, #KEYS do
  local text = seen[i]
  -- One that came through the line is "entry seq ticket".
  if text ~= entry and string.sub(text or '', 1, #entry + 1) ~= entry .. ' ' then
    return 0
  end
end
-- GT: never shortens. A key that is gone stays gone.
for i = 2, #KEYS do
  redis.call('PEXPIRE', KEYS[i], ARGV[2], 'GT')
end
return 1

-- EXTEND of several locks (protocol §8): prolongs all of them, if the entry has them all.
-- KEYS     open, locks
-- ARGV     entry, ttl ms, guard
-- RETURNS  1; 0 if the entry does not have all of the locks
local seen = redis.call('MGET', unpack(KEYS))
local open = seen[1]
-- insert shared/guard.lua
local entry = ARGV[1]
for i = 2, #KEYS do
  local text = seen[i]
  -- The text of a lock that came through the queue is "entry seq ticket".
  if text ~= entry and string.sub(text or '', 1, #entry + 1) ~= entry .. ' ' then
    return 0
  end
end
-- GT never shortens the time, and does not bring back a key that is gone.
for i = 2, #KEYS do
  redis.call('PEXPIRE', KEYS[i], ARGV[2], 'GT')
end
return 1

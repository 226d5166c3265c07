-- RELEASE (protocol §3): frees the lock, if it is ours.
-- KEYS     lock
-- ARGV     entry
-- RETURNS  1; 0, where the lock was not ours
-- No guard: a node that may not vote frees too. DEL is the first write, so that it works at maxmemory.
local held = redis.pcall('GET', KEYS[1])
if held == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
-- A key of another kind is somebody else's; any other error is no answer.
if type(held) == 'table' and string.sub(held.err, 1, 9) ~= 'WRONGTYPE' then
  return held
end
return 0

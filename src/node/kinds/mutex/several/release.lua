-- RELEASE of several locks (protocol §8): frees those that the entry has.
-- KEYS     open, waiting, locks
-- ARGV     entry, p µs, guard
-- RETURNS  1; 0 if the entry had none of the locks; -1, freed or not, if this memory may not vote
-- The guard decides only the answer: locks are freed in any case. DEL is the first write, so that it works at
-- maxmemory. MGET finds nothing in a key of another type, so such a key belongs to somebody else.
local seen, entry, mine = redis.call('MGET', unpack(KEYS)), ARGV[1], {}
for i = 3, #KEYS do
  local text = seen[i]
  -- The text of a lock that came through the queue is "entry seq ticket".
  if text == entry or text and string.sub(text, 1, #entry + 1) == entry .. ' ' then
    mine[#mine + 1] = KEYS[i]
    seen[i] = false
  end
end
local freed = #mine > 0 and redis.call('DEL', unpack(mine)) > 0 and 1 or 0
local admitted = seen[1] == ARGV[3]
-- If anybody waits for a lock on this node, it may be one of these.
if seen[2] then
  local prefix = string.sub(KEYS[1], 1, -5)
  local from, waiting, c0, c1 = #prefix + 1, seen[2], prefix .. 'c0', prefix .. 'c1'
  local max_ttl = string.match(ARGV[3], '^%d+') or 0
-- insert mutex/common.lua
-- insert mutex/tell.lua
-- insert mutex/line.lua
  -- An error at one name keeps no other name from its waiters.
  local why
  for i = 3, #KEYS do
    local key = KEYS[i]
    lock[key] = seen[i]
    if has_line(key) then
      local answer = leave(key, entry, ARGV[2], admitted)
      why = why or type(answer) == 'string' and answer
    end
  end
  if why and freed == 0 then
    return redis.error_reply(why)
  end
end
return admitted and freed or -1

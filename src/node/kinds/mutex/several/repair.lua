-- REPAIR of several locks (protocol §8): puts all of them back for a holder that a majority still has, unless another
-- entry holds one.
-- KEYS     open, locks, the eviction mark of each lock, c0, c1
-- ARGV     entry, ttl ms, token, guard
-- RETURNS  1; 0 if another entry holds one, or if one was evicted
local seen = redis.call('MGET', unpack(KEYS, 1, #KEYS - 2))
local open = seen[1]
-- insert shared/guard.lua
local max_ttl = string.match(guard, '^%d+')
local n, c0, c1, from = (#KEYS - 3) / 2, KEYS[#KEYS - 1], KEYS[#KEYS], #KEYS[1] - 3
local entry, ours, fields = ARGV[1], {}, {}
for i = 1, n do
  local text = seen[i + 1]
  -- The text of a lock that came through the queue is "entry seq ticket", and stays so.
  ours[i] = text == entry or string.sub(text or '', 1, #entry + 1) == entry .. ' '
  -- PTTL also sees a key of another type. That one belongs to somebody else.
  if seen[n + i + 1] or not (ours[i] or redis.call('PTTL', KEYS[i + 1]) == -2) then
    return 0
  end
  fields[i] = string.sub(KEYS[i + 1], from)
end
local read, raised = redis.call('HMGET', c0, unpack(fields)), {}
for i = 1, n do
  -- A counter in c0 was made from the one in c1 and is not less, so c1 is read only if c0 has none.
  local c = tonumber(read[i] or redis.call('HGET', c1, fields[i]) or 0)
  -- insert shared/counter.lua
  if c < tonumber(ARGV[3]) then
    raised[#raised + 1] = fields[i]
    raised[#raised + 1] = ARGV[3]
  end
end
-- The counters are written first: a lock that stood without its own could be followed by a smaller token. The first
-- write fails if the server is full or a replica; nothing after it fails.
if #raised > 0 then
  local time = redis.call('TIME')
  -- The limit of a RAISE. RAISE stops at it; a REPAIR that did so would leave a counter below the token.
  if tonumber(ARGV[3]) > (time[1] + 60) * 1000000 + time[2] + max_ttl * 1000 then
    return redis.error_reply('AHEAD the token is further ahead than a counter may be')
  end
  redis.call('HSET', c0, unpack(raised))
end
-- A full server permits PEXPIRE, and would then permit the SET behind it. So PEXPIRE comes last.
for i = 1, n do
  if not ours[i] then
    redis.call('SET', KEYS[i + 1], entry, 'PX', ARGV[2])
  end
end
for i = 1, n do
  if ours[i] then
    redis.call('PEXPIRE', KEYS[i + 1], ARGV[2], 'GT')
  end
end
return 1

-- REPAIR (protocol §3): puts the lock back for a holder that a majority still has, unless another entry holds it.
-- KEYS     lock, open, evicted, c0, c1, line, waiters, waiting
-- ARGV     counter field, entry, ttl ms, token, guard
-- RETURNS  1; 0 if another entry holds it, or if it was evicted
local seen = redis.call('MGET', KEYS[2], KEYS[1], KEYS[3])
local open = seen[1]
-- insert shared/guard.lua
local max_ttl = string.match(guard, '^%d+')
-- The text of a lock that came through the queue is "entry seq ticket", and stays so.
local ours = seen[2] == ARGV[2] or string.sub(seen[2] or '', 1, #ARGV[2] + 1) == ARGV[2] .. ' '
if seen[3] then
  return 0
end
-- PTTL also sees a key of another type. That one belongs to somebody else.
if not (ours or redis.call('PTTL', KEYS[1]) == -2) then
  -- A waiter may hold this node for a while. When it gives the node back, the lock is kept for this entry until its
  -- next REPAIR. For that the entry stands first in the queue (see line.lua), with no channel.
  local time, life = redis.call('TIME'), tonumber(ARGV[3])
  local ms = time[1] * 1000 + math.floor(time[2] / 1000)
  local lasts, keys = life, { 6, 7 }
  local function obey()
    -- Nobody looks at a queue without this key, so it is written first.
    if tonumber(redis.call('GET', KEYS[8]) or 0) - ms < 3 * life then
      redis.call('SET', KEYS[8], string.format('%.0f', ms + 4 * life), 'PX', 4 * life)
    end
    redis.call('ZADD', KEYS[6], 0, ARGV[2])
    redis.call('HSET', KEYS[7], ARGV[2], string.format('%.0f 0 %s 0 %s %s 0 ', ms, ARGV[3], ARGV[3], ARGV[3]))
    if redis.call('PTTL', KEYS[6]) < 3 * life then
      redis.call('PEXPIRE', KEYS[6], 4 * life)
      redis.call('PEXPIRE', KEYS[7], 4 * life)
    end
    return 0
  end
  -- insert shared/obey.lua
end
-- A counter in c0 was made from the one in c1 and is not less, so c1 is read only if c0 has none.
local c = tonumber(redis.call('HGET', KEYS[4], ARGV[1]) or redis.call('HGET', KEYS[5], ARGV[1]) or 0)
-- insert shared/counter.lua
-- The counter is written first: a lock that stood without it could be followed by a smaller token. The first write
-- fails if the server is full or a replica; nothing after it fails.
if c < tonumber(ARGV[4]) then
  local time = redis.call('TIME')
  -- The limit of a RAISE. RAISE stops at it; a REPAIR that did so would leave a counter below the token.
  if tonumber(ARGV[4]) > (time[1] + 60) * 1000000 + time[2] + max_ttl * 1000 then
    return redis.error_reply('AHEAD the token is further ahead than a counter may be')
  end
  redis.call('HSET', KEYS[4], ARGV[1], ARGV[4])
end
if ours then
  redis.call('PEXPIRE', KEYS[1], ARGV[3], 'GT')
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
redis.call('ZREM', KEYS[6], ARGV[2])
redis.call('HDEL', KEYS[7], ARGV[2])
return 1

-- REPAIR (protocol §3): puts the lock back for a holder whom a majority still has, where nobody else holds it.
-- KEYS     lock, open, evicted, c0, c1
-- ARGV     max_ttl ms, counter field, entry, ttl ms, token, guard
-- RETURNS  1; 0, where somebody else holds it, or it was evicted
local seen = redis.call('MGET', KEYS[2], KEYS[1], KEYS[3])
if seen[1] ~= ARGV[#ARGV] then
  return redis.error_reply('NOT_ADMITTED this memory may not vote')
end
local ours = seen[2] == ARGV[3]
-- PTTL sees a key of another kind too: that is somebody else's.
if seen[3] or not (ours or redis.call('PTTL', KEYS[1]) == -2) then
  return 0
end
-- What stands in c0 was made out of what stood in c1, so it is not less: c1 is read where c0 has nothing.
local c = tonumber(redis.call('HGET', KEYS[4], ARGV[2]) or redis.call('HGET', KEYS[5], ARGV[2]) or 0)
if not (c and c >= 0 and c <= 9007199254740992 and c % 1 == 0) then
  return redis.error_reply('CORRUPT the counter is not a number')
end
-- The counter comes first: a lock that stood without it could be followed by a smaller token. Whatever is
-- written first fails where the server is full or a replica; nothing after it fails.
if c < tonumber(ARGV[5]) then
  local time = redis.call('TIME')
  -- As far as a RAISE goes. That one stops there; here it would leave a counter below the token.
  if tonumber(ARGV[5]) > (time[1] + 60) * 1000000 + time[2] + ARGV[1] * 1000 then
    return redis.error_reply('AHEAD the token is further ahead than a counter may be')
  end
  redis.call('HSET', KEYS[4], ARGV[2], ARGV[5])
end
if ours then
  redis.call('PEXPIRE', KEYS[1], ARGV[4], 'GT')
else
  redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
end
return 1

-- RAISE (protocol §3): brings the counter up to the token, if the lock is ours.
-- KEYS     lock, open, c0, c1
-- ARGV     guard, counter field, entry, token
-- RETURNS  the counter; -1, where the lock is not ours
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return redis.error_reply('NOT_ADMITTED this memory may not vote')
end
if redis.call('GET', KEYS[1]) ~= ARGV[3] then
  return -1
end
local token = tonumber(ARGV[4])
-- What stands in c0 was made out of what stood in c1, so it is not less: c1 is read where c0 has nothing.
local c = tonumber(redis.call('HGET', KEYS[3], ARGV[2]) or redis.call('HGET', KEYS[4], ARGV[2]) or 0)
if not (c and c >= 0 and c <= 9007199254740992 and c % 1 == 0) then
  return redis.error_reply('CORRUPT the counter is not a number')
end
if c < token then
  redis.call('HSET', KEYS[3], ARGV[2], string.format('%.0f', token))
  return token
end
return c

-- INSPECT: who holds, for how long, and the newest token.
-- KEYS     lock, open, c0, c1
-- ARGV     counter field, guard
-- RETURNS  {entry or nil, PTTL, counter}
if redis.call('GET', KEYS[2]) ~= ARGV[#ARGV] then
  return redis.error_reply('NOT_ADMITTED this memory may not vote')
end
local c = tonumber(redis.call('HGET', KEYS[3], ARGV[1]) or redis.call('HGET', KEYS[4], ARGV[1]) or 0)
if not (c and c >= 0 and c <= 9007199254740992 and c % 1 == 0) then
  return redis.error_reply('CORRUPT the counter is not a number')
end
return { redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]), c }

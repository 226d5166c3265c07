-- A counter is a whole number of at most 2^53. The including script defines c.
if not (c and c >= 0 and c <= 9007199254740992 and c % 1 == 0) then
  return redis.error_reply('CORRUPT the counter is not a number')
end

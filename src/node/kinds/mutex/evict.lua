-- EVICT: frees the lock, no matter who holds it. A key of another kind is left alone, by GET's own error.
-- KEYS     lock, open
-- ARGV     guard
-- RETURNS  1; 0, where nobody held it
if redis.call('GET', KEYS[2]) ~= ARGV[#ARGV] then
  return redis.error_reply('NOT_ADMITTED this memory may not vote')
end
if redis.call('GET', KEYS[1]) then
  return redis.call('DEL', KEYS[1])
end
return 0

-- When c0 is older than 2 days it becomes c1, and a new c0 begins. The including script defines c0, c1, begun and now.
if not (begun and now - begun <= 172800000000) then
  if begun then
    redis.call('UNLINK', c1)
    redis.call('RENAME', c0, c1)
  end
  redis.call('HSET', c0, '_', string.format('%-65.0f', now))
end

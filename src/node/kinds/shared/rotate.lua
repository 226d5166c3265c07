-- Counters older than 2 days become the previous ones, and new ones begin. Before it: c0, c1, begun, now.
if not (begun and now - begun <= 172800000000) then
  if begun then
    redis.call('UNLINK', c1)
    redis.call('RENAME', c0, c1)
  end
  redis.call('HSET', c0, '_', string.format('%-65.0f', now))
end

-- The short way of a RELEASE that hands over (protocol §5, serve). A part of RELEASE, since the long way takes twice as long. Mostly
-- the lock is ours, its head hears us and was heard of just now, and p is to be the token. All else, and what fails, is the long way.
local token
if held and admitted and heads[1] ~= entry and heads[3] ~= entry then
  qh = prefix .. '@mutex-waiters:' .. rest
  local h, second, p, floor = heads[1], heads[3], ARGV[2], tonumber(ARGV[2])
  local places = redis.pcall('HMGET', qh, h, second or h)
  local beat, seq, term, delay, life, channel =
    string.match(places[1] or '', '^(%d+) ([1-9]%d*) (%d+) (%d+) (%d+) %d+ 0 (.+)$')
  local read = channel and redis.pcall('HMGET', c0, '@mutex:' .. rest, '_')
  local c, begun = read and tonumber(read[1]), read and tonumber(read[2])
  if c and begun and c >= 0 and c < floor and c % 1 == 0 and floor <= 9007199254740991 then
    local time = redis.call('TIME')
    local now = time[1] * 1000000 + time[2]
    local ms = math.floor(now / 1000)
    local age = ms - beat
    -- Nothing is written before the counter is, so what is refused there was not begun.
    if age * 2 <= tonumber(term) and age <= tonumber(life) and now - begun <= 172800000000 and floor < now + max_ttl * 1000
      and type(redis.pcall('HSET', c0, '@mutex:' .. rest, p)) == 'number' then
      token = floor
      local heard = redis.pcall('SPUBLISH', channel, 'G ' .. h .. ' ' .. seq .. ' ' .. p .. ' ' .. ARGV[3])
      -- SET in the place of DEL: the lock is ours until then.
      if type(heard) == 'number' and heard > 0
        and redis.pcall('SET', KEYS[1], h .. ' ' .. seq .. ' ' .. heads[2], 'PX', term + delay).ok then
        redis.pcall('ZREM', q, h, entry)
        redis.pcall('HDEL', qh, h, entry)
        tell(q, qh, second, second and places[2], term, channel, ms)
        return 1
      end
    end
  end
end

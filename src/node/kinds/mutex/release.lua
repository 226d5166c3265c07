-- RELEASE (protocol §3): frees the lock, if it is ours, and leaves the line.
-- KEYS     lock, open, waiting
-- ARGV     entry, p µs, guard
-- RETURNS  1; 0, where the lock was not ours; -1, done or not, where this memory may not vote
-- The guard decides the answer, never the deed. DEL is the first write, so that it works at maxmemory.
-- MGET finds nothing in a key of another kind: that is somebody else's.
local seen = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
local text, entry, admitted = seen[1], ARGV[1], seen[2] == ARGV[3]
-- One that came through the line is "entry seq ticket".
local held = text == entry or text and string.byte(text, #entry + 1) == 32 and string.find(text, entry, 1, true) == 1
-- Where somebody waits for a lock on this node, it may be for this one.
local prefix = seen[3] and string.sub(KEYS[2], 1, -5)
local rest = prefix and string.sub(KEYS[1], #KEYS[2] + 4)
local queue, places = prefix and prefix .. '@mutex-line:' .. rest
local heads = queue and redis.pcall('ZRANGE', queue, 0, 1, 'WITHSCORES')
if not (heads and heads[1]) then
  local freed = held and redis.call('DEL', KEYS[1])
  return admitted and (freed or 0) or -1
end
-- Somebody does.
local from, waiting, c0, c1 = #prefix + 1, seen[3], prefix .. 'c0', prefix .. 'c1'
local max_ttl = string.match(ARGV[3], '^%d+') or 0
-- insert mutex/tell.lua
-- The short way of a RELEASE that hands over (protocol §5, serve). A part of RELEASE, since the long way takes twice as long. Mostly
-- this client has the lock, and the head hears and was heard of just now, and p is to be the token. All else, and what fails, is the long way.
local token
if held and admitted and heads[1] ~= entry and heads[3] ~= entry then
  places = prefix .. '@mutex-waiters:' .. rest
  local h, second, p, floor = heads[1], heads[3], ARGV[2], tonumber(ARGV[2])
  local texts = redis.pcall('HMGET', places, h, second or h)
  local beat, seq, term, delay, life, channel =
    string.match(texts[1] or '', '^(%d+) ([1-9]%d*) (%d+) (%d+) (%d+) %d+ 0 (.+)$')
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
      -- SET in place of DEL: this client has the lock until then.
      if type(heard) == 'number' and heard > 0
        and redis.pcall('SET', KEYS[1], h .. ' ' .. seq .. ' ' .. heads[2], 'PX', term + delay).ok then
        redis.pcall('ZREM', queue, h, entry)
        redis.pcall('HDEL', places, h, entry)
        tell(queue, places, second, second and texts[2], term, channel, ms)
        return 1
      end
    end
  end
end
-- insert mutex/common.lua
-- insert mutex/line.lua
about(KEYS[1])
lock[KEYS[1]] = seen[1]
local answer = leave(KEYS[1], ARGV[1], ARGV[2], admitted, token)
return type(answer) == 'string' and redis.error_reply(answer) or answer

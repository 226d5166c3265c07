-- The fast paths of an operation that is alone in its batch (protocol §3, §5). A part of BATCH. It stands before the
-- tables and functions for several operations, because making those costs as much as the operation itself. Everything
-- else, and every failure, takes the slow path.
local letter, text, entry, name = ARGV[1], seen[3], ARGV[2], string.sub(KEYS[3], from)
local q, qh
if waiting then
  local prefix, rest = string.sub(KEYS[3], 1, from - 1), string.sub(name, 8)
  q, qh = prefix .. '@mutex-line:' .. rest, prefix .. '@mutex-waiters:' .. rest
end
-- The first two in the queue. A queue key of another type counts as empty. With any other error nothing is known.
local heads = waiting and (letter == 'A' or letter == 'R') and redis.pcall('ZRANGE', q, 0, 1, 'WITHSCORES') or {}
local h, second = heads[1], heads[3]
if heads.err and not string.find(heads.err, '^WRONGTYPE') then
  letter = nil
end
-- True if the entry has the lock. If the lock came through the queue its text is "entry seq ticket".
local held = text == entry or (text and string.byte(text, #entry + 1) == 32 and string.find(text, entry, 1, true) == 1)
if letter == 'A' and not h and not text then
  -- The lock is free, and p can be the token.
  local time, p = redis.call('TIME'), tonumber(ARGV[4])
  local read, now = redis.pcall('HMGET', c0, name, '_'), time[1] * 1000000 + time[2]
  -- A counter in c0 was made from the one in c1 and is not less, so c1 is read only if c0 has none.
  local c, begun = tonumber(read[1] or redis.pcall('HGET', c1, name) or 0), tonumber(read[2])
  if c and begun and c >= 0 and c % 1 == 0 and c < p and p <= math.min(now + max_ttl * 1000, 9007199254740991)
    and now - begun <= 172800000000
    and (redis.pcall('SET', KEYS[3], entry, 'NX', 'PX', ARGV[3]) or read).ok then
    if type(redis.pcall('HSET', c0, name, ARGV[4])) == 'number' then
      return 1
    end
    -- A lock without its counter could be followed by a smaller token.
    redis.pcall('DEL', KEYS[3])
  end
elseif letter == 'R' and held and not h then
  if redis.pcall('DEL', KEYS[3]) == 1 then
    return 1
  end
elseif letter == 'R' and held and h ~= entry and second ~= entry then
  -- The head has a channel, it was heard of recently, and p can be the token (see serve).
  local p, floor, texts = ARGV[3], tonumber(ARGV[3]), redis.pcall('HMGET', qh, h, second or h)
  local beat, seq, term, delay, life, channel =
    string.match(texts[1] or '', '^(%d+) ([1-9]%d*) (%d+) (%d+) (%d+) %d+ 0 (.+)$')
  local read = channel and redis.pcall('HMGET', c0, name, '_')
  local c, begun = read and tonumber(read[1]), read and tonumber(read[2])
  if c and begun and c >= 0 and c % 1 == 0 and c < floor and floor <= 9007199254740991 then
    local time = redis.call('TIME')
    local now = time[1] * 1000000 + time[2]
    local ms = math.floor(now / 1000)
    local age = ms - beat
    -- The counter is the first write. If that is refused, nothing has been done.
    if age * 2 <= tonumber(term) and age <= tonumber(life) and now - begun <= 172800000000
      and floor <= now + max_ttl * 1000 and type(redis.pcall('HSET', c0, name, p)) == 'number' then
      made = floor
      -- SET replaces DEL here: until then this client has the lock. The head counts what it hears, so SET comes first.
      local set = redis.pcall('SET', KEYS[3], h .. ' ' .. seq .. ' ' .. heads[2], 'PX', term + delay).ok
      local heard = set and redis.pcall('SPUBLISH', channel, 'G ' .. h .. ' ' .. seq .. ' ' .. p .. ' ' .. ARGV[#ARGV])
      if type(heard) == 'number' and heard > 0 then
        redis.pcall('ZREM', q, h, entry)
        redis.pcall('HDEL', qh, h, entry)
-- insert mutex/tell.lua
        tell(q, qh, second, second and texts[2], term, channel, ms)
        return 1
      end
      -- The slow path deletes the lock first, under either holder.
    end
  end
elseif (letter == 'J' or letter == 'L') and waiting and text and not held then
  -- Another entry has the lock, others wait for it, and the lifetime of the queue need not be extended (see register).
  local ticket, life = tonumber(ARGV[6]), ARGV[9]
  local time, left = redis.call('TIME'), redis.pcall('PTTL', q)
  local ms, least = time[1] * 1000 + math.floor(time[2] / 1000), 3 * life
  local its = letter == 'L' and tonumber(string.match(text, ' (%d+)$') or 0)
  local last = its and redis.pcall('ZRANGE', q, -1, -1, 'WITHSCORES')[2]
  if type(left) == 'number' and left >= least and (tonumber(waiting) or 0) - ms >= least
    and not (its and math.max(its, tonumber(last or 0) or 0) >= ticket) then
    local is_new = redis.pcall('HSET', qh, entry, string.format('%.0f %s %s %s %s %s 0 %s', ms, ARGV[5], ARGV[7], ARGV[8],
      life, ARGV[10], ARGV[11]))
    if is_new == 1 then
      redis.pcall('ZADD', q, ARGV[6], entry)
    end
    local rank = redis.pcall('ZRANK', q, entry)
    if type(is_new) == 'number' and type(rank) == 'number' then
      return { { rank, redis.call('PTTL', KEYS[3]), string.sub(text, 1, 224), 0 } }
    end
  end
end


-- What is known of a read-write lock (protocol §4). A part of its scripts, behind what each of them does. Readers: entries by
-- the ms in which they end. Writers: those who wait, by the ms in which they do no more. Wakes: "entry channel" of who waits, the
-- same. What ended before this ms of TIME is not there. Where the readers are of another type nothing is granted, and where the
-- intents are, nothing to readers: the script fails.

-- The fleet's longest ttl in ms, which a right guard says.
max_ttl = string.match(ARGV[#ARGV], '^%d+')

function look_at_clock()
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
  ms = math.floor(now / 1000)
end

-- Until when this one is there; nil, where it is not.
function till(key, entry)
  local score = redis.call('ZSCORE', key, entry)
  local at = score and tonumber(score)
  return at and at >= ms and at or nil
end

-- The first of those who are there, and until when; or nil. (ZCARD costs a quarter of ZRANGE by score, and mostly nobody is.)
function first(key)
  if redis.call('ZCARD', key) == 0 then
    return nil
  end
  local one = redis.call('ZRANGE', key, ms, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  return one[1], tonumber(one[2])
end

-- The one who stays for longest, and until when; or nil.
function last(key)
  if redis.call('ZCARD', key) == 0 then
    return nil
  end
  local one = redis.call('ZRANGE', key, '+inf', ms, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
  return one[1], tonumber(one[2])
end

-- At most 1,000 of those that are over.
local function forget_the_gone(key)
  if redis.call('ZCARD', key) > 1 then
    local over = redis.call('ZRANGE', key, '-inf', '(' .. ms, 'BYSCORE', 'LIMIT', 0, 1000)
    if over[1] then
      redis.call('ZREM', key, unpack(over))
    end
  end
end

-- Puts it there for so long, or keeps it for longer; never shortens. The key outlives it.
function put(key, entry, length)
  redis.call('ZADD', key, 'GT', ms + length, entry)
  if redis.call('PTTL', key) < tonumber(length) then
    redis.call('PEXPIRE', key, 2 * length)
  end
  forget_the_gone(key)
end

-- The newest token, and since when c0 is written. Nil and why, where it cannot be read.
function counter(c0, c1, field)
  local read = redis.call('HMGET', c0, field, '_')
  -- A counter in c0 was made from the one in c1 and is not less, so c1 is read only if c0 has none.
  local c = tonumber(read[1] or redis.call('HGET', c1, field) or 0)
  if not (c and c >= 0 and c <= 9007199254740992 and c % 1 == 0) then
    return nil, redis.error_reply('CORRUPT the counter is not a number')
  end
  return c, read[2] and tonumber(read[2])
end

-- The next token, as ACQUIRE of a mutex makes it. Nil and why, where there is none.
function mint(c0, c1, field, p, c, begun)
  local floor, cap = tonumber(p), now + max_ttl * 1000
  local token = math.max(c + 1, math.min(floor, cap))
  if token > 9007199254740991 then
    return nil, redis.error_reply('EXHAUSTED the counter is at 2^53 - 1')
  end
  local text = token == floor and p or string.format('%.0f', token)
  -- insert shared/rotate.lua
  redis.call('HSET', c0, field, text)
  return token
end

-- Brings the counter up to a holder's token, as far as a RAISE goes. Why not, where that fails.
function bring(c0, c1, field, token)
  local c, why = counter(c0, c1, field)
  if not c then
    return why
  end
  if c < tonumber(token) then
    -- A RAISE stops there; here it would leave a counter below the token.
    if tonumber(token) > now + (60000 + max_ttl) * 1000 then
      return redis.error_reply('AHEAD the token is further ahead than a counter may be')
    end
    redis.call('HSET', c0, field, token)
  end
end

-- It is told to who waits, at the latest for so long. Where that cannot be written down it asks from time to time.
function wants_to_hear(wakes, entry, channel, life)
  if channel ~= '' and type(redis.pcall('ZADD', wakes, ms + life, entry .. ' ' .. channel)) == 'number' then
    if redis.call('PTTL', wakes) < tonumber(life) then
      redis.call('PEXPIRE', wakes, 2 * life)
    end
    forget_the_gone(wakes)
  end
end

-- Readers that were refused are let in before writers that wait.
function let_in(refused, window, length)
  if tonumber(length) > 0 and redis.pcall('DEL', refused) == 1 then
    redis.pcall('SET', window, '', 'PX', length)
  end
end

-- Each process in which somebody waits hears that the lock was freed: by who has asked last.
function wake(wakes)
  if redis.pcall('ZCARD', wakes) == 0 then
    return
  end
  local all, told = redis.pcall('ZRANGE', wakes, '+inf', ms, 'BYSCORE', 'REV'), {}
  for _, one in ipairs(all.err and {} or all) do
    local entry, channel = string.match(one, '^(%S+) (.+)$')
    if channel and not told[channel] then
      told[channel] = true
      redis.pcall('SPUBLISH', channel, 'F ' .. entry)
    end
  end
  if not all.err then
    redis.call('DEL', wakes)
  end
end

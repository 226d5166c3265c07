
-- The state of a read-write lock (protocol §4). A part of its scripts, inserted after the function obey of each.
-- Readers: a sorted set of entries by the ms in which they end. Writers: the same for the writers that wait. Wakes: the
-- same for "entry channel" of each waiter. A member that ended before this ms of TIME counts as absent.
-- If the readers are of another type nothing is granted, and if the intents are, nothing is granted to readers: the
-- script fails.

-- The fleet's longest ttl in ms, as a right guard names it.
max_ttl = string.match(ARGV[#ARGV], '^%d+')

function look_at_clock()
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
  ms = math.floor(now / 1000)
end

-- Until when this entry is there; nil if it is not.
function till(key, entry)
  local score = redis.call('ZSCORE', key, entry)
  local at = score and tonumber(score)
  return at and at >= ms and at or nil
end

-- The entry that ends first, and when; nil if there is none. (The set is mostly empty, and ZCARD costs a quarter of
-- ZRANGE by score.)
function first(key)
  if redis.call('ZCARD', key) == 0 then
    return nil
  end
  local one = redis.call('ZRANGE', key, ms, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  return one[1], tonumber(one[2])
end

-- The entry that ends last, and when; nil if there is none.
function last(key)
  if redis.call('ZCARD', key) == 0 then
    return nil
  end
  local one = redis.call('ZRANGE', key, '+inf', ms, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
  return one[1], tonumber(one[2])
end

-- Removes at most 1,000 members that have ended.
local function forget_the_gone(key)
  if redis.call('ZCARD', key) > 1 then
    local over = redis.call('ZRANGE', key, '-inf', '(' .. ms, 'BYSCORE', 'LIMIT', 0, 1000)
    if over[1] then
      redis.call('ZREM', key, unpack(over))
    end
  end
end

-- Puts the entry there for this length of time, or prolongs it; never shortens. The key outlives it.
function put(key, entry, length)
  redis.call('ZADD', key, 'GT', ms + length, entry)
  if redis.call('PTTL', key) < tonumber(length) then
    redis.call('PEXPIRE', key, 2 * length)
  end
  forget_the_gone(key)
end

-- The newest token, and the time at which c0 was begun. If it cannot be read: nil and the error.
function counter(c0, c1, field)
  local read = redis.call('HMGET', c0, field, '_')
  -- A counter in c0 was made from the one in c1 and is not less, so c1 is read only if c0 has none.
  local c = tonumber(read[1] or redis.call('HGET', c1, field) or 0)
  if not (c and c >= 0 and c <= 9007199254740992 and c % 1 == 0) then
    return nil, redis.error_reply('CORRUPT the counter is not a number')
  end
  return c, read[2] and tonumber(read[2])
end

-- The next token, made as ACQUIRE of a mutex makes it. If there is none: nil and the error.
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

-- Brings the counter up to a holder's token, within the limit of a RAISE. Returns the error if that fails.
function bring(c0, c1, field, token)
  local c, why = counter(c0, c1, field)
  if not c then
    return why
  end
  if c < tonumber(token) then
    -- RAISE stops at the limit. A REPAIR that did so would leave a counter below the token.
    if tonumber(token) > now + (60000 + max_ttl) * 1000 then
      return redis.error_reply('AHEAD the token is further ahead than a counter may be')
    end
    redis.call('HSET', c0, field, token)
  end
end

-- Registers a waiter to be told of a release, for the length of life. If that cannot be written, the waiter asks from
-- time to time.
function wants_to_hear(wakes, entry, channel, life)
  if channel ~= '' and type(redis.pcall('ZADD', wakes, ms + life, entry .. ' ' .. channel)) == 'number' then
    if redis.call('PTTL', wakes) < tonumber(life) then
      redis.call('PEXPIRE', wakes, 2 * life)
    end
    forget_the_gone(wakes)
  end
end

-- Lets in readers that were refused, before waiting writers.
function let_in(refused, window, length)
  if tonumber(length) > 0 and redis.pcall('DEL', refused) == 1 then
    redis.pcall('SET', window, '', 'PX', length)
  end
end

-- Tells each process with a waiter that the lock was freed, once, by the entry that asked last.
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

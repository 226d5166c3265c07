-- Who waits for a slot (protocol §6). A part of the scripts about slots, behind what is known; made only where it is needed.
local read = '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$'
-- A free slot came to who asks: its answer tells it.
local is_told = false

local function channel_of(entry)
  local text = redis.call('HGET', KEYS[1], entry)
  local channel = text and select(6, string.match(text, read))
  return channel ~= '' and channel or nil
end

-- Who has come into the gate is told.
local function tell_the_last()
  local entered = redis.call('ZRANGE', KEYS[4], gate() - 1, gate() - 1)[1]
  local channel = entered and channel_of(entered)
  if channel then
    local free = next_free(0)
    redis.pcall('SPUBLISH', channel, free and 'S ' .. entered .. ' ' .. free or 'W ' .. entered)
  end
end

-- It waits no more, and its text says so already. Who comes into the gate by that is told, where anybody may be. Whether it
-- was in there itself.
function leave(entry, tells)
  local rank = redis.call('ZRANK', KEYS[4], entry)
  redis.call('ZREM', KEYS[4], entry)
  local was_in_it = rank and rank < gate()
  if tells and was_in_it then
    tell_the_last()
  end
  return was_in_it
end

-- Puts it in line, as one that was heard of now; or hears of it again.
function register(entry, its, term, life, channel, is_first)
  redis.call('HSET', KEYS[1], entry, string.format('%.0f 0 %s %s %s %s', ms, term, life, its, channel))
  redis.call('ZADD', KEYS[4], its, entry)
  used(is_first)
end

-- Who has a greater ticket elsewhere gets it here: the order is to be the same on all nodes. Else everybody might stand in
-- front on a few nodes, and nobody on a majority.
function fall_back(entry, its, term, life, channel)
  local rank = redis.call('ZRANK', KEYS[4], entry)
  register(entry, its, term, life, channel, false)
  if rank and rank < gate() and redis.call('ZRANK', KEYS[4], entry) >= gate() then
    tell_the_last()
  end
end

-- One behind who was called is told when to ask: the first of another process who hears it. What is called may have
-- vanished, and its process with it.
local function tell_next(some, texts, from, term, called)
  for i = from, #some do
    local channel = texts[i] and select(6, string.match(texts[i], read))
    if channel and channel ~= '' and channel ~= called then
      local heard = redis.pcall('SPUBLISH', channel, 'N ' .. some[i] .. ' ' .. term)
      if type(heard) == 'number' and heard > 0 then
        return
      end
    end
  end
end

-- Those in the gate, of the first 64, who have not come when they were called, or were not heard of for too long, are out of
-- line. Whether there were any.
function sweep()
  local some, swept = redis.call('ZRANGE', KEYS[4], 0, math.min(gate(), 64) - 1), false
  local texts = #some > 0 and redis.call('HMGET', KEYS[1], unpack(some)) or {}
  for i, entry in ipairs(some) do
    local heard, called, term, life = string.match(texts[i] or '', read)
    local is_there = heard and ms - heard <= tonumber(life)
    if is_there and called ~= '0' then
      local since = ms - called
      is_there = since >= 0 and since <= tonumber(term)
    end
    if heard and entry ~= asks and not is_there then
      local gone = redis.pcall('ZREM', KEYS[4], entry)
      if type(gone) ~= 'number' then
        return swept
      end
      redis.call('HDEL', KEYS[1], entry)
      swept = true
    end
  end
  return swept
end

-- A slot is free: the first of those in the gate who has not been called yet is told. One that nobody hears is out of line.
function call(one)
  -- One that is free above the limit makes room below it.
  if limit and one >= limit then
    one = next_free(0)
  end
  local passed, most = 0, one and gate() or 0
  while passed < most do
    local some = redis.call('ZRANGE', KEYS[4], passed, passed + 16)
    if #some == 0 then
      return
    end
    local texts = redis.call('HMGET', KEYS[1], unpack(some))
    for i, entry in ipairs(some) do
      if passed == most then
        return
      end
      local heard, called, term, life, its, channel = string.match(texts[i] or '', read)
      local is_there = heard and ms - heard <= tonumber(life)
      if is_there and called ~= '0' then
        -- It has to come within its term. Called later than now: the clock went back.
        local since = ms - called
        is_there = since >= 0 and since <= tonumber(term)
      end
      if entry == asks then
        if not is_told then
          is_told = true
          return
        end
        passed = passed + 1
      elseif is_there and (called ~= '0' or channel == '') then
        passed = passed + 1
      else
        local ears = is_there and redis.pcall('SPUBLISH', channel, 'S ' .. entry .. ' ' .. one) or 0
        if type(ears) ~= 'number' then
          return
        elseif ears > 0 then
          local text = string.format('%s %.0f %s %s %s %s', heard, ms, term, life, its, channel)
          local set = redis.pcall('HSET', KEYS[1], entry, text)
          if type(set) == 'number' then
            tell_next(some, texts, i + 1, term, channel)
          end
          return
        end
        -- A replica refuses it.
        local gone = redis.pcall('ZREM', KEYS[4], entry)
        if type(gone) ~= 'number' then
          return
        end
        if heard then
          redis.call('HDEL', KEYS[1], entry)
        end
      end
    end
  end
end

-- Slots from here on are new: they are free for as many as stand in the gate.
function call_new(from)
  local one = next_free(from)
  for _ = 1, gate() do
    if not one then
      return
    end
    call(one)
    one = next_free(one + 1)
  end
end

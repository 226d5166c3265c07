-- The queue for slots (protocol §6). A part of the scripts about slots, in the function line, which they call only if
-- they need it.
local read = '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$'
-- True once a free slot would have gone to the entry that asks. It is not called: its answer tells it.
local is_told = false

local function channel_of(entry)
  local text = redis.call('HGET', KEYS[1], entry)
  local channel = text and select(6, string.match(text, read))
  return channel ~= '' and channel or nil
end

-- Tells the waiter that has just entered the gate.
local function tell_the_last()
  local entered = redis.call('ZRANGE', KEYS[4], gate() - 1, gate() - 1)[1]
  local channel = entered and channel_of(entered)
  if channel then
    local free = next_free(0)
    redis.pcall('SPUBLISH', channel, free and 'S ' .. entered .. ' ' .. free or 'W ' .. entered)
  end
end

-- Takes the entry out of the queue. The caller has changed or removed its text already. If tells, the waiter that
-- enters the gate by that is told. Returns true if the entry was in the gate.
function leave(entry, tells)
  local rank = redis.call('ZRANK', KEYS[4], entry)
  redis.call('ZREM', KEYS[4], entry)
  local was_in_it = rank and rank < gate()
  if tells and was_in_it then
    tell_the_last()
  end
  return was_in_it
end

-- Puts the entry into the queue, or refreshes it. It counts as heard of now.
function register(entry, its, term, life, channel, is_first)
  redis.call('HSET', KEYS[1], entry, string.format('%.0f 0 %s %s %s %s', ms, term, life, its, channel))
  redis.call('ZADD', KEYS[4], its, entry)
  used(is_first)
end

-- A waiter that was given a greater ticket on another node gets that ticket here, so that the order is the same on all
-- nodes. Otherwise each waiter might be in front on a few nodes, and none on a majority.
function fall_back(entry, its, term, life, channel)
  local rank = redis.call('ZRANK', KEYS[4], entry)
  register(entry, its, term, life, channel, false)
  if rank and rank < gate() and redis.call('ZRANK', KEYS[4], entry) >= gate() then
    tell_the_last()
  end
end

-- Tells a waiter behind the called one when to ask: the first of another process that hears it. The called waiter may
-- have vanished with its whole process.
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

-- Removes waiters in the gate, among the first 64, that were called and have not come, or were not heard of for too
-- long. Returns true if it removed any.
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

-- A slot is free: calls the first waiter in the gate that has not been called yet. A waiter that nobody hears is
-- removed.
function call(one)
  -- A slot that became free above the limit makes room below it.
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
        -- It has to come within S. A call later than now means that the clock went back.
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
        -- A replica refuses this write.
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

-- The slots from here on are new. They are called out, but no more of them than the gate has waiters.
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

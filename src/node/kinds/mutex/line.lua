-- The queue (protocol §5). A part of BATCH, and of ACQUIRE, RELEASE and JOIN when anybody waits. It needs
-- mutex/common.lua before it. The including script defines from, the index in the key of a lock at which the field of
-- its counter begins, and waiting, until when anybody may wait for any lock, in ms of TIME.
-- Two keys for each name: q holds the waiters by ticket; qh holds by entry what a waiter was registered with:
-- "heartbeat ms, seq, S ms, lock-delay ms, life ms, claim ms, reserved until ms or 0, channel".
local key_of, name, q, qh, ms, ms_text

-- Selects the lock that the functions below work on. An operation that may serve the queue must run the pending DELs
-- first: a later DEL would remove what the queue has just granted.
local function about(key)
  local prefix, text = sub(key, 1, from - 1), sub(key, from + 7)
  key_of, name = key, nil
  q, qh = prefix .. '@mutex-line:' .. text, prefix .. '@mutex-waiters:' .. text
end

local function look_at_clock()
  if not ms then
    clock()
    ms = math.floor(now / 1000)
    ms_text = format('%.0f', ms)
  end
end

-- The counter, or nil if it cannot be read. It also sets name, which most calls do not need.
local function count()
  name = name or sub(key_of, from)
  if counter[name] == nil then
    local read = pcall('HMGET', c0, name, '_')
    local c = read.err and read or read[1]
    begun = begun or (read[2] and tonumber(read[2]))
    if not c then
      c = pcall('HGET', c1, name)
      missing[#missing + 1] = name
      older[#missing] = c
    end
    counter[name] = c
  end
  local c = tonumber(counter[name] or 0)
  return c and c >= 0 and c <= 9007199254740992 and c % 1 == 0 and c or nil
end

-- The next token, as ACQUIRE makes it. If there is none: nil and the error.
local function mint(p)
  local c, floor = count(), tonumber(p)
  if not c then
    return nil, why_unread(name)
  end
  local token = floor < cap and floor or cap
  if token <= c then
    token = c + 1
  end
  if token > 9007199254740991 then
    return nil, 'EXHAUSTED the counter is at 2^53 - 1'
  end
  local why = not (begun and now - begun <= 172800000000) and rotate()
  local text = token == floor and p or format('%.0f', token)
  why = why or failed(pcall('HSET', c0, name, text))
  if why then
    return nil, why
  end
  counter[name] = text
  return token
end

-- Takes the entry out of the queue. Returns the error, or nil.
local function dequeue(entry)
  local was = pcall('ZREM', q, entry)
  return failed(was) or (was > 0 and failed(pcall('HDEL', qh, entry))) or nil
end

-- The queue lives as long as anybody waits. Returns the error, or nil.
local function outlast(life)
  local least, longest = 3 * life, 4 * life
  local left = pcall('PTTL', q)
  local why = failed(left)
  if not why and left < least then
    why = failed(pcall('PEXPIRE', q, longest)) or failed(pcall('PEXPIRE', qh, longest))
  end
  -- Its value is the time at which it ends. Every call reads it, so this saves asking for its PTTL.
  local over = tonumber(waiting)
  if not why and (not over or over - ms < least) then
    local text = format('%.0f', ms + longest)
    why = failed(pcall('SET', sub(q, 1, from - 1) .. 'waiting', text, 'PX', longest))
    waiting = why and waiting or text
  end
  return why
end

-- Puts the entry into the queue, or refreshes it: then it keeps its ticket. It counts as heard of now. Returns the
-- error, or nil and the rank.
local function register(entry, seq, ticket, term, delay, life, claim, channel)
  local text = ms_text .. ' ' .. seq .. ' ' .. term .. ' ' .. delay .. ' ' .. life .. ' ' .. claim .. ' 0 ' .. channel
  local is_new = pcall('HSET', qh, entry, text)
  if failed(is_new) then
    return is_new.err
  end
  local rank = is_new == 0 and pcall('ZRANK', q, entry)
  local was_there, why = type(rank) == 'number', denied(rank)
  if why then
    return why
  end
  if not was_there then
    why = failed(pcall('ZADD', q, ticket, entry))
    rank = why or pcall('ZRANK', q, entry)
    why = why or failed(rank)
  end
  -- New waiters, the head, and every fourth request of a waiter prolong the queue.
  if not why and (not was_there or rank == 0 or seq % 4 == 0) then
    why = outlast(life)
  end
  -- A waiter that is not written whole is taken out again: it might have made keys that have no expiry.
  if why and not was_there then
    pcall('ZREM', q, entry)
    pcall('HDEL', qh, entry)
  end
  return why, rank
end

-- Gives a free lock to the head of the queue. p: of the client that freed the lock, or that tries to take it; token:
-- if one was made already.
-- Returns  nil: no living entry waits, or only not_w does
--          'me', token or nil: the head is me. The lock is not handed over; the caller answers it
--          'taken' or 'reserved', for how long, for whom: the text as it stands in the lock, or would stand there
--          'stuck', 0, false: something failed. The lock is free
local function serve(key, p, not_w, me, token)
  while true do
    local heads = pcall('ZRANGE', q, 0, 1, 'WITHSCORES')
    if denied(heads) then
      return 'stuck', 0, false
    end
    local h, ticket, second = heads[1], heads[2], heads[3]
    if not h or h == not_w then
      return nil
    elseif h == me then
      return 'me', token
    end
    local places = pcall('HMGET', qh, h, second or h)
    if denied(places) then
      return 'stuck', 0, false
    end
    local beat, seq, term, delay, life, claim, reserved, channel =
      string.match(places[1] or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
    local age = beat and ms - beat
    local alive = beat and age <= tonumber(life)
    if alive and reserved ~= '0' then
      local left = reserved - ms
      -- More time left than the claim means that the clock went back.
      if left > 0 and left <= tonumber(claim) then
        return 'reserved', left, h .. ' 0 ' .. ticket
      end
      alive = false
    elseif alive and channel ~= '' and seq ~= '0' and age * 2 <= tonumber(term) then
      token = token or mint(p)
      local text, left = h .. ' ' .. seq .. ' ' .. ticket, term + delay
      -- The head counts what it hears, so the lock is written before anybody can hear of it.
      if not token or failed(pcall('SET', key, text, 'PX', left)) then
        return 'stuck', 0, false
      end
      lock[key] = text
      -- The message carries the guard because a server replicates what it publishes: a client counts it only if the
      -- guard is that of the node it came from.
      local heard = pcall('SPUBLISH', channel, format('G %s %s %.0f %s', h, seq, token, ARGV[#ARGV]))
      local why = failed(heard)
      alive = why or heard > 0
      if alive and not why then
        dequeue(h)
        tell(q, qh, second, second and places[2], term, channel, ms)
        return 'taken', left, text
      end
      -- Nobody heard it. The lock is taken back. If that fails too, it stays the head's for a while.
      if failed(pcall('DEL', key)) then
        return 'taken', left, text
      end
      lock[key] = false
      if why then
        return 'stuck', 0, false
      end
    elseif alive then
      -- The head has to ask. Without a channel it asks from time to time.
      local heard = channel == '' and 1 or pcall('SPUBLISH', channel, 'W ' .. h)
      if type(heard) ~= 'number' then
        return 'stuck', 0, false
      end
      alive = heard > 0
      if alive then
        local text = format('%s %s %s %s %s %s %.0f %s', beat, seq, term, delay, life, claim, ms + claim, channel)
        if failed(pcall('HSET', qh, h, text)) then
          return 'stuck', 0, false
        end
        tell(q, qh, second, second and places[2], claim, channel, ms)
        return 'reserved', tonumber(claim), h .. ' 0 ' .. ticket
      end
    end
    if not alive and dequeue(h) then
      return 'stuck', 0, false
    end
  end
end

-- True if anybody may wait for this lock.
local function has_line(key)
  about(key)
  local count = pcall('ZCARD', q)
  return denied(count) or (type(count) == 'number' and count > 0)
end

-- ACQUIRE of a name that has a queue, which it never overtakes. Nil: no living entry waits, or the counter has
-- reached its end. It then goes on like any other ACQUIRE.
local function behind(key, p)
  local c = count()
  local left = c and pcall('PTTL', key)
  if type(left) ~= 'number' then
    return left and left.err
  end
  local whose = lock[key]
  if left == -2 then
    if c >= 9007199254740991 then
      return nil
    end
    look_at_clock()
    local what
    what, left, whose = serve(key, p)
    if not what then
      return nil
    end
  end
  -- Another program may have written a score that is not a valid ticket.
  local last = tonumber(pcall('ZRANGE', q, -1, -1, 'WITHSCORES')[2] or 0)
  last = last and last >= 0 and last <= 9007199254740991 and last or 0
  return { left, tonumber(counter[name] or 0), whose and sub(whose, 1, 224), last }
end

-- True if an entry that may only be the last would come before a waiter, or before the holder.
local function overtakes(key, entry, ticket)
  local last = waiting and pcall('ZRANGE', q, -1, -1, 'WITHSCORES')[2]
  local its = string.match(lock[key] or '', ' (%d+)$')
  return math.max(tonumber(last or 0) or 0, tonumber(its or 0)) >= ticket and not pcall('ZSCORE', q, entry)
end

-- RELEASE of a name that has a queue.
local function leave(key, entry, p, admitted, token)
  local held = ours(lock[key], entry)
  if held then
    local why = failed(pcall('DEL', key))
    if why then
      return why
    end
    lock[key] = false
  end
  -- A lock that was freed is told as freed: a repeated RELEASE would find nothing.
  local why = dequeue(entry)
  if why and not held then
    return why
  end
  -- PTTL also sees a key of another type.
  if admitted and (held or (not lock[key] and pcall('PTTL', key) == -2)) then
    look_at_clock()
    serve(key, p, nil, nil, token)
  end
  return admitted and (held and 1 or 0) or -1
end

-- The arguments after p are the place. Returns the answer, and true if p was the token.
local function join(only_last, key, entry, ttl, p, seq, ticket, term, ...)
  look_at_clock()
  if ours(lock[key], entry) then
    local c = count()
    if not c then
      return why_unread(name)
    end
    -- GT never shortens the time.
    local why = failed(pcall('PEXPIRE', key, ttl, 'GT'))
    return why or { c, tonumber(string.match(lock[key], '^ (%d+)', #entry + 1) or 0) }
  end
  if only_last and overtakes(key, entry, tonumber(ticket)) then
    local answer = behind(key, p)
    if type(answer) == 'table' then
      answer[5] = 1
    end
    if answer then
      return answer
    end
  end
  local left, whose = pcall('PTTL', key), lock[key]
  if failed(left) then
    return left.err
  end
  -- An unreadable counter fails only an operation that may need it.
  if left == -2 and not count() then
    return why_unread(name)
  end
  local what, token, why, rank
  local head = left == -2 and pcall('ZRANGE', q, 0, 0)[1]
  if left == -2 and (not head or head == entry) then
    what = 'me'
  else
    why, rank = register(entry, seq, ticket, term, ...)
    if why then
      return why
    end
    if left == -2 then
      what, left, whose = serve(key, p, nil, entry)
      token, head, rank = left, entry, nil
    end
  end
  if what == 'me' then
    if not token then
      token, why = mint(p)
    end
    local text = entry .. ' ' .. seq .. ' ' .. ticket
    why = why or failed(pcall('SET', key, text, 'PX', ttl))
    lock[key] = not why and text
    why = why or (head and dequeue(entry))
    if why then
      return why
    end
    return { token, tonumber(seq) }, token == tonumber(p)
  end
  rank = rank or pcall('ZRANK', q, entry)
  return { tonumber(rank) or 0, left or 0, whose and sub(whose, 1, 224) or false,
    what == 'reserved' and 1 or 0 }
end

-- The arguments after p are the place, as for JOIN.
local function yield(key, entry, p, seq, ...)
  look_at_clock()
  local text, this = lock[key], entry .. ' ' .. seq .. ' '
  local held, why = text and sub(text, 1, #this) == this
  if held then
    why = failed(pcall('DEL', key))
    lock[key] = why and text
  elseif ours(text, entry) then
    -- The entry has the lock by a later request.
    return 1, true
  end
  -- A yielded lock is not handed over again: seq 0 says so.
  why = why or register(entry, '0', ...)
  if why then
    return why
  end
  if held or (not lock[key] and pcall('PTTL', key) == -2) then
    serve(key, p, entry)
  end
  return 1, true
end

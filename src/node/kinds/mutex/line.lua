-- The line (protocol §5). A part of BATCH: made only where somebody waits, or is about to.
-- Of each name q is who waits, by ticket, and qh by entry what it was registered with:
-- "heartbeat ms, seq, S ms, lock-delay ms, life ms, claim ms, reserved until ms or 0, channel".
local has_line, behind, leave, join, yield
if waiting or string.find(ARGV[2], 'J', 1, true) or string.find(ARGV[2], 'Y', 1, true) then
  local format, prefix = string.format, sub(KEYS[1], 1, from - 1)
  local name, q, qh, ms

  -- From here on it is about the name of this operation. Whatever may serve runs the pending DELs before: a DEL
  -- that came later would remove what the line has just granted.
  local function about(i)
    name = field[i] or sub(KEYS[i + 2], from)
    field[i] = name
    local text = sub(name, 8)
    q, qh = prefix .. '@mutex-line:' .. text, prefix .. '@mutex-waiters:' .. text
  end

  local function clock()
    if not now then
      local time = redis.call('TIME')
      now = time[1] * 1000000 + time[2]
      cap = now + ARGV[1] * 1000
    end
    ms = math.floor(now / 1000)
  end

  -- The counter; nil, where it cannot be read.
  local function count()
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

  -- The next token, as ACQUIRE makes it. Nil and why, where there is none.
  local function mint(i, p)
    local c, floor = count(), tonumber(p)
    if not c then
      return nil, why_unread(i)
    end
    local token = floor < cap and floor or cap
    if token <= c then
      token = c + 1
    end
    if token > 9007199254740991 then
      return nil, 'EXHAUSTED the counter is at 2^53 - 1'
    end
    local why = not (begun and now - begun <= 604800000000) and rotate()
    local text = token == floor and p or format('%.0f', token)
    why = why or failed(pcall('HSET', c0, name, text))
    if why then
      return nil, why
    end
    counter[name] = text
    return token
  end

  local function record(entry)
    local text = pcall('HGET', qh, entry)
    if type(text) ~= 'string' then
      return nil
    end
    local beat, seq, term, delay, life, claim, reserved, channel =
      string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
    return beat and { beat = beat, seq = seq, term = term, delay = delay, life = life, claim = claim,
      reserved = reserved, channel = channel }
  end

  local function dequeue(entry)
    return failed(pcall('ZREM', q, entry)) or failed(pcall('HDEL', qh, entry))
  end

  -- Puts the place at ARGV[at] in line, as one that was heard of now, or refreshes it: then it keeps its ticket. Returns
  -- why not, or nil and its rank.
  local function register(entry, at, seq)
    local ticket, term, delay, life, claim, channel = unpack(ARGV, at + 1, at + 6)
    local text = format('%.0f %s %s %s %s %s 0 %s', ms, seq, term, delay, life, claim, channel)
    local is_new = pcall('HSET', qh, entry, text)
    if failed(is_new) then
      return is_new.err
    end
    local rank = is_new == 0 and pcall('ZRANK', q, entry)
    if not rank then
      local why = failed(pcall('ZADD', q, ticket, entry))
      if why then
        return why
      end
      is_new, rank = 1, pcall('ZRANK', q, entry)
    end
    if failed(rank) then
      return rank.err
    end
    -- The line lives for as long as anybody waits: who is new sees to that, and its head, and every fourth request.
    if is_new == 0 and rank > 0 and seq % 4 > 0 then
      return nil, rank
    end
    local least, longest, why = 3 * life, 4 * life
    local left = pcall('PTTL', q)
    if failed(left) then
      return left.err
    end
    if left < least then
      why = failed(pcall('PEXPIRE', q, longest)) or failed(pcall('PEXPIRE', qh, longest))
    end
    -- It says when it is over itself: it is read by every call, and asking for its PTTL is saved.
    local over = tonumber(waiting)
    if not over or over - ms < least then
      waiting = format('%.0f', ms + longest)
      why = why or failed(pcall('SET', KEYS[2], waiting, 'PX', longest))
    end
    return why, rank
  end

  -- The next one in line is told when to ask. It need not hear that.
  local function tell(entry, after)
    local w = entry and record(entry)
    if w and w.channel ~= '' then
      pcall('PUBLISH', w.channel, 'N ' .. entry .. ' ' .. after)
    end
  end

  -- A free lock goes to the head of the line. p: of who has set it free, or tries to take it.
  -- Returns  nil: nobody who is alive waits, or only not_w does
  --          'me', token or nil: me is the head. It is not handed over, but answered
  --          'taken' or 'reserved', for how long, whose: the text as it stands in the lock, or would
  --          'stuck', 0, false: something failed. The lock is free
  local function serve(i, key, p, not_w, me)
    local token
    while true do
      local heads = pcall('ZRANGE', q, 0, 1, 'WITHSCORES')
      local h, ticket, second = heads[1], heads[2], heads[3]
      if not h or h == not_w then
        return nil
      elseif h == me then
        return 'me', token
      end
      local w = record(h)
      local age = w and ms - w.beat
      local alive = w and age <= tonumber(w.life)
      if alive and w.reserved ~= '0' then
        local left = w.reserved - ms
        -- Longer than it was kept for: the clock went back.
        if left > 0 and left <= tonumber(w.claim) then
          return 'reserved', left, h .. ' 0 ' .. ticket
        end
        alive = false
      elseif alive and w.channel ~= '' and w.seq ~= '0' and age * 2 <= tonumber(w.term) then
        token = token or mint(i, p)
        -- Nothing is written for a head before somebody hears it: else its connection is gone.
        local heard = token and pcall('PUBLISH', w.channel, format('G %s %s %.0f %s', h, w.seq, token, w.term))
        if type(heard) ~= 'number' then
          return 'stuck', 0, false
        end
        alive = heard > 0
        if alive then
          local text, left = h .. ' ' .. w.seq .. ' ' .. ticket, w.term + w.delay
          if failed(pcall('SET', key, text, 'PX', left)) then
            return 'stuck', 0, false
          end
          lock[key] = text
          dequeue(h)
          tell(second, w.term)
          return 'taken', left, text
        end
      elseif alive then
        -- It has to ask. Without a channel it does so from time to time.
        local heard = w.channel == '' and 1 or pcall('PUBLISH', w.channel, 'W ' .. h)
        if type(heard) ~= 'number' then
          return 'stuck', 0, false
        end
        alive = heard > 0
        if alive then
          local text = format('%s %s %s %s %s %s %.0f %s', w.beat, w.seq, w.term, w.delay, w.life, w.claim,
            ms + w.claim, w.channel)
          if failed(pcall('HSET', qh, h, text)) then
            return 'stuck', 0, false
          end
          tell(second, w.claim)
          return 'reserved', tonumber(w.claim), h .. ' 0 ' .. ticket
        end
      end
      if not alive and dequeue(h) then
        return 'stuck', 0, false
      end
    end
  end

  -- Whether anybody waits for the name of this operation.
  function has_line(i)
    about(i)
    local count = pcall('ZCARD', q)
    return type(count) == 'number' and count > 0
  end

  -- ACQUIRE of a name that has a line, which it never overtakes. Nil: it is as any other, as nobody is alive there.
  function behind(i, key, p)
    clock()
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
      local what
      what, left, whose = serve(i, key, p)
      if not what then
        return nil
      end
    end
    -- Somebody else may have written there what is no ticket.
    local last = tonumber(pcall('ZRANGE', q, -1, -1, 'WITHSCORES')[2] or 0)
    last = last and last >= 0 and last <= 9007199254740991 and last or 0
    return { left, tonumber(counter[name] or 0), whose and sub(whose, 1, 160), last }
  end

  -- RELEASE of a name that has a line.
  function leave(i, key, entry, p)
    local held = ours(lock[key], entry)
    if held then
      local why = failed(pcall('DEL', key))
      if why then
        return why
      end
      lock[key] = false
    end
    local why = dequeue(entry)
    if why then
      return why
    end
    -- PTTL sees a key of another kind too.
    if admitted and (held or (not lock[key] and pcall('PTTL', key) == -2)) then
      clock()
      serve(i, key, p)
    end
    return admitted and (held and 1 or 0) or -1
  end

  -- at: where in ARGV the place is. Returns the answer, and whether p was given.
  function join(i, key, entry, ttl, p, at)
    about(i)
    clock()
    local c, seq = count(), ARGV[at]
    if not c then
      return why_unread(i)
    end
    if ours(lock[key], entry) then
      -- GT: never shortens.
      local why = failed(pcall('PEXPIRE', key, ttl, 'GT'))
      return why or { c, tonumber(string.match(lock[key], '^ (%d+)', #entry + 1) or 0) }
    end
    local left, whose = pcall('PTTL', key), lock[key]
    if failed(left) then
      return left.err
    end
    local what, token, why, rank
    local head = left == -2 and pcall('ZRANGE', q, 0, 0)[1]
    if left == -2 and (not head or head == entry) then
      what = 'me'
    else
      why, rank = register(entry, at, seq)
      if why then
        return why
      end
      if left == -2 then
        what, left, whose = serve(i, key, p, nil, entry)
        token, head, rank = left, entry, nil
      end
    end
    if what == 'me' then
      if not token then
        token, why = mint(i, p)
      end
      local text = entry .. ' ' .. seq .. ' ' .. ARGV[at + 1]
      why = why or failed(pcall('SET', key, text, 'PX', ttl)) or (head and dequeue(entry))
      if why then
        return why
      end
      lock[key] = text
      return { token, tonumber(seq) }, token == tonumber(p)
    end
    rank = rank or pcall('ZRANK', q, entry)
    return { tonumber(counter[name] or 0), tonumber(rank) or 0, left or 0, whose and sub(whose, 1, 160),
      what == 'reserved' and 1 or 0 }
  end

  -- at: as in JOIN.
  function yield(i, key, entry, p, at)
    about(i)
    clock()
    local text, this = lock[key], entry .. ' ' .. ARGV[at] .. ' '
    local held, why = text and sub(text, 1, #this) == this
    if held then
      why = failed(pcall('DEL', key))
      lock[key] = why and text
    elseif ours(text, entry) then
      -- By a later request.
      return 1, true
    end
    -- What was given back is not given again: the seq is used up.
    why = why or register(entry, at, '0')
    if why then
      return why
    end
    if held or (not lock[key] and pcall('PTTL', key) == -2) then
      serve(i, key, p, entry)
    end
    return 1, true
  end
end

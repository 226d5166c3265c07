-- BATCH (protocol §3, §5): several operations on locks, executed in order in one atomic step.
-- KEYS     open, waiting, the lock of each operation, c0, c1
-- ARGV     a letter for each operation, the arguments of each, guard
--            ACQUIRE: A entry, ttl ms, p µs · RAISE: T entry or "entry seq", token · EXTEND: E entry, ttl ms
--            RELEASE: R entry, p µs · JOIN: J, or L to join only as the last, entry, ttl ms, p µs, place
--            YIELD: Y entry, p µs, place
--            A place is: seq, ticket, S ms, lock-delay ms, life ms, claim ms, channel
-- RETURNS  the number of operations, if each went as asked: A, J and L granted p, T raised the counter to its token,
--          E and R found the lock held by their entry, and Y was executed. Otherwise an array with an answer for each
--          operation, or the text of its error:
--            A the counter; if another entry has the lock: {PTTL, counter, text in the lock or nil, and the last ticket
--              if there is a queue}
--            T the counter; -1 if the entry does not have the lock · E 1; 0 if the entry does not have the lock
--            R 1; 0 if the entry did not have the lock; -1, freed or not, if this memory may not vote
--            J {counter, seq} if the entry has the lock; otherwise {rank, PTTL, text of the holder or nil, 1 if the
--              lock is only reserved}
--            L as J; {PTTL, counter, text of the holder or nil, last ticket, 1} if the entry would not be the last
--            Y 1
-- The locks and counters are read once, except on a fast path. An operation that writes updates the copy that was read,
-- so that the operations after it see the change.
-- Every write is a pcall: a failure is the error of its own operation, and the others still run.
local n, c0, c1 = #KEYS - 4, KEYS[#KEYS - 1], KEYS[#KEYS]
-- A wrong guard may have any text. No counter is made then, so max_ttl is not used.
local max_ttl = string.match(ARGV[#ARGV], '^%d+') or 0
local seen = redis.call('MGET', unpack(KEYS, 1, n + 2))
local admitted = seen[1] == ARGV[#ARGV]
-- Until when anybody may wait for any lock here, in ms of TIME; false if nobody waits.
local waiting = seen[2]
-- The index in the key of a lock at which the field of its counter begins.
local from = #KEYS[1] - 3
-- The token that the fast path made for a lock that it could not hand over.
local made
if n == 1 and admitted then
-- insert mutex/lone.lua
end
-- insert mutex/common.lua
local letters = { string.byte(ARGV[1], 1, n) }
-- By operation: the field of its counter.
local field = {}
for i = 1, n do
  lock[KEYS[i + 2]] = seen[i + 2]
end
if admitted and string.find(ARGV[1], '[AT]') then
  clock()
  local fields = { '_' }
  for i = 1, n do
    local letter = letters[i]
    if letter == 65 or letter == 84 then
      field[i] = sub(KEYS[i + 2], from)
      fields[#fields + 1] = field[i]
    end
  end
  local read = pcall('HMGET', c0, unpack(fields))
  begun = read[1] and tonumber(read[1])
  for i = 2, #fields do
    local name, c = fields[i], read.err and read or read[i]
    counter[name] = c
    if not c then
      missing[#missing + 1] = name
    end
  end
  -- A counter in c0 was made from the one in c1 and is not less, so c1 is read only if c0 has none.
  if #missing > 0 then
    older = pcall('HMGET', c1, unpack(missing))
    for i = 1, #missing do
      counter[missing[i]] = older.err and older or older[i]
    end
  end
end
local function line()
-- insert mutex/tell.lua
-- insert mutex/line.lua
return about, has_line, behind, leave, join, yield
end
local answers, as_asked = {}, true

-- Released locks are deleted together, and before any write that a full server may refuse.
local freed, freed_by, freed_text = {}, {}, {}
local function free()
  local why = failed(pcall('DEL', unpack(freed)))
  if why then
    as_asked = false
    for at, i in ipairs(freed_by) do
      answers[i] = why
      lock[freed[at]] = freed_text[at]
    end
  end
  freed, freed_by, freed_text = {}, {}, {}
end

-- The answer of an ACQUIRE that did not take the lock: it is held, or its counter has reached the end.
local function refused(key, c, exhausted)
  local left = pcall('PTTL', key)
  if failed(left) then
    return left.err
  end
  if exhausted and left == -2 then
    return 'EXHAUSTED the counter is at 2^53 - 1'
  end
  -- A key of another type has no text. The longest text of this library is shorter (protocol §1).
  local holder = lock[key]
  return { left, c, holder and sub(holder, 1, 224) }
end

local function raise(name, wanted)
  local c, asked = tonumber(counter[name] or 0), tonumber(wanted)
  if not (c and c >= 0 and c <= 9007199254740992 and c % 1 == 0) then
    return why_unread(name)
  end
  -- RAISE is capped a minute later than ACQUIRE (protocol §3).
  local token = math.min(asked, cap + 60000000)
  if c < token then
    if #freed > 0 then
      free()
    end
    local text = format('%.0f', token)
    local why = failed(pcall('HSET', c0, name, text))
    if why then
      return why
    end
    counter[name], c = text, token
  end
  return c, c == asked
end

local about, has_line, behind, leave, join, yield
if waiting or string.find(ARGV[1], '[JLY]') then
  about, has_line, behind, leave, join, yield = line()
end
-- The operations that were granted, and to whom. Their counters are written together at the end.
local minted, taker = {}, {}
-- A lock without its counter could be followed by a smaller token, so it does not stay.
local function take_back(i, entry)
  local key = KEYS[i + 2]
  if lock[key] == entry then
    pcall('DEL', key)
    lock[key] = false
  end
end
local at = 2
for i = 1, n do
  local letter, key, entry = letters[i], KEYS[i + 2], ARGV[at]
  local answer, right
  if letter == 82 then
    local p = ARGV[at + 1]
    at = at + 2
    -- The guard decides only the answer: the lock is freed in any case.
    if waiting and has_line(key) then
      if #freed > 0 then
        free()
      end
      answer = leave(key, entry, p, admitted, made)
      right = answer == 1
    elseif lock[key] == entry or ours(lock[key], entry) then
      freed_text[#freed + 1] = lock[key]
      freed[#freed + 1] = key
      freed_by[#freed_by + 1] = i
      lock[key] = false
      answer, right = admitted and 1 or -1, admitted
    else
      answer = admitted and 0 or -1
    end
  elseif letter == 65 then
    local ttl, p = ARGV[at + 1], ARGV[at + 2]
    at = at + 3
    if admitted and waiting and has_line(key) then
      if #freed > 0 then
        free()
      end
      answer = behind(key, p)
    end
    local c = admitted and tonumber(counter[field[i]] or 0)
    if not admitted then
      answer = 'NOT_ADMITTED this memory may not vote'
    elseif answer then
      right = false
    elseif not (c and c >= 0 and c <= 9007199254740992 and c % 1 == 0) then
      answer = why_unread(field[i])
    else
      if #freed > 0 then
        free()
      end
      local floor = tonumber(p)
      -- The floor is capped, never ignored. Ignoring it gave out one token twice after a restart.
      local token = floor < cap and floor or cap
      if token <= c then
        token = c + 1
      end
      local exhausted = token > 9007199254740991
      local set = not exhausted and pcall('SET', key, entry, 'NX', 'PX', ttl)
      answer = set and set.err
      if not set then
        answer = refused(key, c, exhausted)
      elseif not answer then
        lock[key] = entry
        if not (begun and now - begun <= 172800000000) then
          answer = rotate()
        end
        if answer then
          take_back(i, entry)
        end
      end
      if not answer then
        answer, right = token, token == floor
        minted[#minted + 1], taker[i] = i, entry
        -- Usually p is the token and is written as it came, because formatting costs half a microsecond.
        counter[field[i]] = right and p or format('%.0f', token)
      end
    end
  elseif letter == 74 or letter == 76 or letter == 89 then
    local place = at + (letter == 89 and 2 or 3)
    local ttl, p = ARGV[at + 1], ARGV[place - 1]
    at = place + 7
    if not admitted then
      answer = 'NOT_ADMITTED this memory may not vote'
    else
      if #freed > 0 then
        free()
      end
      about(key)
      if letter == 89 then
        answer, right = yield(key, entry, p, unpack(ARGV, place, place + 6))
      else
        answer, right = join(letter == 76, key, entry, ttl, p, unpack(ARGV, place, place + 6))
      end
    end
  else
    local number = ARGV[at + 1]
    at = at + 2
    if not admitted then
      answer = 'NOT_ADMITTED this memory may not vote'
    elseif not (lock[key] == entry or ours(lock[key], entry)) then
      answer = letter == 84 and -1 or 0
    elseif letter == 84 then
      answer, right = raise(field[i], number)
    else
      -- GT never shortens the time, and does not bring back a key that is gone.
      local why = failed(pcall('PEXPIRE', key, number, 'GT'))
      answer, right = why or 1, not why
    end
  end
  answers[i] = answer
  as_asked = as_asked and right
end

if #freed > 0 then
  free()
end
if #minted > 0 then
  local written = {}
  for place, i in ipairs(minted) do
    written[2 * place - 1] = field[i]
    written[2 * place] = counter[field[i]]
  end
  local why = failed(pcall('HSET', c0, unpack(written)))
  if why then
    as_asked = false
    for _, i in ipairs(minted) do
      answers[i] = why
      take_back(i, taker[i])
    end
  end
end
return as_asked and n or answers

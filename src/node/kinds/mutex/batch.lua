-- BATCH (protocol §3): many operations about locks, one after the other, in one step.
-- KEYS     open, the lock of each operation, c0, c1
-- ARGV     max_ttl ms, a letter for each operation, what each one needs, guard
--            A entry, ttl ms, p µs · T entry, token · E entry, ttl ms · R entry: ACQUIRE, RAISE, EXTEND, RELEASE
-- RETURNS  how many they are, where all went as asked: A gave p, T raised to its token, E and R found their own.
--          Else an array. In the place of each: what its own script returns, or the text of its error
-- The locks and counters are read once. What one operation writes is written here too, for those behind it.
-- Every write is a pcall: what fails for one operation is its own error, and spoils no other.
local n = #KEYS - 3
local c0, c1 = KEYS[n + 2], KEYS[n + 3]
local letters = { string.byte(ARGV[2], 1, n) }
local pcall = redis.pcall
local seen = redis.call('MGET', unpack(KEYS, 1, n + 1))
local admitted = seen[1] == ARGV[#ARGV]
local lock = {}
for i = 1, n do
  lock[KEYS[i + 1]] = seen[i + 1]
end

-- What a call failed with, if it did.
local function failed(reply)
  return type(reply) == 'table' and reply.err
end

-- By operation: the field of its counter. By field: the counter as it stands; or why it cannot be read.
local field, counter = {}, {}
-- What was read from c1.
local missing, older = {}, {}
local now, cap, begun
if admitted and string.find(ARGV[2], '[AT]') then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
  cap = now + ARGV[1] * 1000
  local sub, from, fields = string.sub, #KEYS[1] - 3, { '_' }
  for i = 1, n do
    local letter = letters[i]
    if letter == 65 or letter == 84 then
      local name = sub(KEYS[i + 1], from)
      field[i] = name
      fields[#fields + 1] = name
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
  -- What stands in c0 was made out of what stood in c1, so it is not less: c1 is read where c0 has nothing.
  if #missing > 0 then
    older = pcall('HMGET', c1, unpack(missing))
    for i = 1, #missing do
      counter[missing[i]] = older.err and older or older[i]
    end
  end
end

local answers, as_asked = {}, true

-- Locks that were released are deleted together, but before anything is written that a full server may refuse.
local freed, freed_by = {}, {}
local function free()
  local why = failed(pcall('DEL', unpack(freed)))
  if why then
    as_asked = false
    for _, i in ipairs(freed_by) do
      answers[i] = why
    end
  end
  freed, freed_by = {}, {}
end

-- Counters older than 7 days become the previous ones (see ACQUIRE). Returns why not, where that fails.
local function rotate()
  local why = begun and (failed(pcall('UNLINK', c1)) or failed(pcall('RENAME', c0, c1)))
  for i = 1, begun and #missing or 0 do
    if counter[missing[i]] == older[i] then
      counter[missing[i]] = false
    end
  end
  begun = now
  return why or failed(pcall('HSET', c0, '_', string.format('%-65.0f', now)))
end

local function why_unread(i)
  return failed(counter[field[i]]) or 'CORRUPT the counter is not a number'
end

-- A lock that was not taken: somebody holds it, or its counter is at its end.
local function refused(key, c, exhausted)
  local left = pcall('PTTL', key)
  if failed(left) then
    return left.err
  end
  if exhausted and left == -2 then
    return 'EXHAUSTED the counter is at 2^53 - 1'
  end
  -- A key of another kind has no text. No entry is longer than 97 bytes: more is not worth sending.
  local holder = lock[key]
  return { left, c, holder and string.sub(holder, 1, 98) }
end

local function raise(i, key, wanted)
  local c, asked = tonumber(counter[field[i]] or 0), tonumber(wanted)
  if not (c and c >= 0 and c <= 9007199254740992 and c % 1 == 0) then
    return why_unread(i)
  end
  -- A minute beyond where an ACQUIRE is capped (see RAISE).
  local token = math.min(asked, cap + 60000000)
  if c < token then
    if #freed > 0 then
      free()
    end
    local text = string.format('%.0f', token)
    local why = failed(pcall('HSET', c0, field[i], text))
    if why then
      return why
    end
    counter[field[i]], c = text, token
  end
  return c, c == asked
end

-- Who was granted a lock. Their counters are written together at the end.
local minted = {}
local at = 3
for i = 1, n do
  local letter, key, entry = letters[i], KEYS[i + 1], ARGV[at]
  local answer, right
  if letter == 82 then
    at = at + 1
    -- The guard decides the answer, never the deed.
    if lock[key] == entry then
      lock[key] = false
      freed[#freed + 1] = key
      freed_by[#freed_by + 1] = i
      answer, right = admitted and 1 or -1, admitted
    else
      answer = admitted and 0 or -1
    end
  elseif letter == 65 then
    local ttl, p = ARGV[at + 1], ARGV[at + 2]
    at = at + 3
    local c = admitted and tonumber(counter[field[i]] or 0)
    if not admitted then
      answer = 'NOT_ADMITTED this memory may not vote'
    elseif not (c and c >= 0 and c <= 9007199254740992 and c % 1 == 0) then
      answer = why_unread(i)
    else
      if #freed > 0 then
        free()
      end
      local floor = tonumber(p)
      -- The floor is capped, never ignored: ignored, one token was given out twice after a restart.
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
        if not (begun and now - begun <= 604800000000) then
          answer = rotate()
        end
      end
      if not answer then
        answer, right = token, token == floor
        minted[#minted + 1] = i
        -- p is written as it came where it is the token, as it mostly is: formatting costs half a microsecond.
        counter[field[i]] = right and p or string.format('%.0f', token)
      end
    end
  else
    local number = ARGV[at + 1]
    at = at + 2
    if not admitted then
      answer = 'NOT_ADMITTED this memory may not vote'
    elseif lock[key] ~= entry then
      answer = letter == 84 and -1 or 0
    elseif letter == 84 then
      answer, right = raise(i, key, number)
    else
      -- GT: never shortens. A key that is gone stays gone.
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
    end
  end
end
return as_asked and n or answers

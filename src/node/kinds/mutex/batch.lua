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
local field_at = #KEYS[1] - 3
local seen = redis.call('MGET', unpack(KEYS, 1, n + 1))
local admitted = seen[1] == ARGV[#ARGV]
local lock, counter = {}, {}
for i = 1, n do
  lock[KEYS[i + 1]] = seen[i + 1]
end

local function failed(reply)
  return type(reply) == 'table' and reply.err
end

local now, begun
local ahead = ARGV[1] * 1000
if admitted and string.find(ARGV[2], '[AT]') then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
  local fields = { '_' }
  for i = 1, n do
    if letters[i] == 65 or letters[i] == 84 then
      fields[#fields + 1] = string.sub(KEYS[i + 1], field_at)
    end
  end
  local read = redis.pcall('HMGET', c0, unpack(fields))
  local missing = {}
  for i = 2, #fields do
    local c = read.err and read or read[i]
    counter[fields[i]] = c
    if not c then
      missing[#missing + 1] = fields[i]
    end
  end
  -- What stands in c0 was made out of what stood in c1, so it is not less: c1 is read where c0 has nothing.
  if #missing > 0 then
    local older = redis.pcall('HMGET', c1, unpack(missing))
    for i = 1, #missing do
      counter[missing[i]] = older.err and older or older[i]
    end
  end
  begun = not read.err and read[1] and tonumber(read[1])
end

-- The counter of this field; or nil and why not.
local function read_counter(field)
  local c = counter[field]
  if failed(c) then
    return nil, c.err
  end
  c = tonumber(c or 0)
  if not (c and c >= 0 and c <= 9007199254740992 and c % 1 == 0) then
    return nil, 'CORRUPT the counter is not a number'
  end
  return c
end

local answers, as_asked = {}, true

-- Locks that were released are deleted together, but before anything is written that a full server may refuse.
local freed, freed_by = {}, {}
local function free()
  local why = #freed > 0 and failed(redis.pcall('DEL', unpack(freed)))
  if why then
    as_asked = false
    for _, i in ipairs(freed_by) do
      answers[i] = why
    end
  end
  freed, freed_by = {}, {}
end

-- Counters older than 7 days become the previous ones (see ACQUIRE). Why not, where that fails.
local function rotate()
  if begun and now - begun <= 604800000000 then
    return
  end
  local why = begun and (failed(redis.pcall('UNLINK', c1)) or failed(redis.pcall('RENAME', c0, c1)))
  why = why or failed(redis.pcall('HSET', c0, '_', string.format('%-65.0f', now)))
  begun = now
  return why
end

-- Counters of what was granted, which are written together at the end; and by whom.
local minted, minted_by = {}, {}

local function acquire(i, key, entry, ttl, p)
  local field = string.sub(key, field_at)
  local c, why = read_counter(field)
  if why then
    return why
  end
  free()
  local floor = tonumber(p)
  -- The floor is capped, never ignored: ignored, one token was given out twice after a restart.
  local token = math.max(c + 1, math.min(floor, now + ahead))
  local exhausted = token > 9007199254740991
  local set = not exhausted and redis.pcall('SET', key, entry, 'NX', 'PX', ttl)
  why = failed(set)
  if set and not why then
    why = rotate()
  end
  if why then
    return why
  end
  if not set then
    local left = redis.pcall('PTTL', key)
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
  lock[key] = entry
  -- p is written as it came where it is the token, as it mostly is: formatting costs half a microsecond.
  counter[field] = token == floor and p or string.format('%.0f', token)
  minted[#minted + 1] = field
  minted_by[#minted_by + 1] = i
  return token, token == floor
end

local function raise(key, entry, wanted)
  if lock[key] ~= entry then
    return -1
  end
  local field = string.sub(key, field_at)
  local c, why = read_counter(field)
  if why then
    return why
  end
  local asked = tonumber(wanted)
  local token = math.min(asked, now + 60000000 + ahead)
  if c < token then
    free()
    local text = string.format('%.0f', token)
    why = failed(redis.pcall('HSET', c0, field, text))
    if why then
      return why
    end
    counter[field], c = text, token
  end
  return c, c == asked
end

local function extend(key, entry, ttl)
  if lock[key] ~= entry then
    return 0
  end
  -- GT: never shortens. A key that is gone stays gone.
  local why = failed(redis.pcall('PEXPIRE', key, ttl, 'GT'))
  return why or 1, not why
end

local at = 3
for i = 1, n do
  local letter, key, entry = letters[i], KEYS[i + 1], ARGV[at]
  local answer, right
  if letter == 82 then
    at = at + 1
    local ours = lock[key] == entry
    if ours then
      lock[key] = false
      freed[#freed + 1] = key
      freed_by[#freed_by + 1] = i
    end
    -- The guard decides the answer, never the deed.
    answer, right = admitted and (ours and 1 or 0) or -1, ours and admitted
  elseif not admitted then
    at = at + (letter == 65 and 3 or 2)
    answer = 'NOT_ADMITTED this memory may not vote'
  elseif letter == 65 then
    answer, right = acquire(i, key, entry, ARGV[at + 1], ARGV[at + 2])
    at = at + 3
  elseif letter == 84 then
    answer, right = raise(key, entry, ARGV[at + 1])
    at = at + 2
  else
    answer, right = extend(key, entry, ARGV[at + 1])
    at = at + 2
  end
  answers[i] = answer
  as_asked = as_asked and right
end

free()
if #minted > 0 then
  local written = {}
  for _, field in ipairs(minted) do
    written[#written + 1] = field
    written[#written + 1] = counter[field]
  end
  local why = failed(redis.pcall('HSET', c0, unpack(written)))
  if why then
    as_asked = false
    for _, i in ipairs(minted_by) do
      answers[i] = why
    end
  end
end
return as_asked and n or answers

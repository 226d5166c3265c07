-- BATCH (protocol §3, §5): many operations about locks, one after the other, in one step.
-- KEYS     open, waiting, the lock of each operation, c0, c1
-- ARGV     max_ttl ms, a letter for each operation, what each one needs, guard
--            ACQUIRE: A entry, ttl ms, p µs · RAISE: T entry, or entry and seq, token · EXTEND: E entry, ttl ms
--            RELEASE: R entry, p µs · JOIN: J entry, ttl ms, p µs, place · YIELD: Y entry, p µs, place
--            A place is: seq, ticket, S ms, lock-delay ms, life ms, claim ms, channel
-- RETURNS  how many they are, where all went as asked: A and J gave p, T raised to its token, E and R found their
--          own, Y was done. Else an array. In the place of each: what its own script returns, or the text of its error
--            J {counter, seq}, where it is ours; {counter, rank, PTTL, whose or nil, 1 where that is only reserved}
--            Y 1
-- The locks and counters are read once. What one operation writes is written here too, for those behind it.
-- Every write is a pcall: what fails for one operation is its own error, and spoils no other.
-- It is three files, one after the other: what all need; the line; each operation. An ACQUIRE or a RELEASE that
-- travels alone is a short script of its own, and comes here where anybody waits for any lock.
local n = #KEYS - 4
local c0, c1 = KEYS[n + 3], KEYS[n + 4]
local letters = { string.byte(ARGV[2], 1, n) }
local pcall, sub = redis.pcall, string.sub
local seen = redis.call('MGET', unpack(KEYS, 1, n + 2))
local admitted = seen[1] == ARGV[#ARGV]
-- Until when somebody may wait for any lock, in ms of TIME; false: nobody does.
local waiting = seen[2]
local lock = {}
for i = 1, n do
  lock[KEYS[i + 2]] = seen[i + 2]
end

-- What a call failed with, if it did.
local function failed(reply)
  return type(reply) == 'table' and reply.err
end

-- Whether this text in a lock is of this entry: that, or "entry seq ticket" of one that came through the line.
local function ours(text, entry)
  return text == entry or (text and sub(text, 1, #entry + 1) == entry .. ' ')
end

-- By operation: the field of its counter. By field: the counter as it stands; or why it cannot be read.
local field, counter = {}, {}
-- Where in the key of a lock that begins.
local from = #KEYS[1] - 3
-- What was read from c1.
local missing, older = {}, {}
local now, cap, begun
if admitted and string.find(ARGV[2], '[AT]') then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
  cap = now + ARGV[1] * 1000
  local fields = { '_' }
  for i = 1, n do
    local letter = letters[i]
    if letter == 65 or letter == 84 then
      local name = sub(KEYS[i + 2], from)
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
  -- A key of another kind has no text. Nothing of ours is longer than 138 bytes: more is not worth sending.
  local holder = lock[key]
  return { left, c, holder and sub(holder, 1, 160) }
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

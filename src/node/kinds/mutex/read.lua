-- What a BATCH reads, for all of its operations together. A part of it.
local letters = { string.byte(ARGV[1], 1, n) }
local seen = redis.call('MGET', unpack(KEYS, 1, n + 2))
local admitted = seen[1] == ARGV[#ARGV]
-- Until when somebody may wait for any lock, in ms of TIME; false: nobody does.
local waiting = seen[2]
-- Where in the key of a lock its name begins.
local from = #KEYS[1] - 3
-- By operation: the name of its counter.
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
  -- What stands in c0 was made out of what stood in c1, so it is not less: c1 is read where c0 has nothing.
  if #missing > 0 then
    older = pcall('HMGET', c1, unpack(missing))
    for i = 1, #missing do
      counter[missing[i]] = older.err and older or older[i]
    end
  end
end

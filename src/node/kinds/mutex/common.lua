-- The state of locks and their counters (protocol §3). A part of BATCH, and of every script that may touch the queue.
-- The including script defines c0, c1, and max_ttl in ms.
local pcall, sub, format, byte, find = redis.pcall, string.sub, string.format, string.byte, string.find
-- By key: the text in the lock, or false. By field: the counter, or the error that reading it gave.
local lock, counter = {}, {}
-- Fields whose counter was read from c1, and what was read there.
local missing, older = {}, {}
-- TIME in µs; the greatest value to which it lets a counter go; the time at which c0 was begun.
local now, cap, begun

local function clock()
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
    cap = now + max_ttl * 1000
  end
end

-- The error of a reply, or nil.
local function failed(reply)
  return type(reply) == 'table' and reply.err
end

-- The error of a reply, unless the key is of another type, which counts as a key that is not there. Any other failure
-- must not look like that.
local function denied(reply)
  local why = failed(reply)
  return why and not find(why, '^WRONGTYPE') and why
end

-- True if this text in a lock belongs to this entry. It is the entry, or "entry seq ticket" if the lock came through
-- the queue. The comparison cuts nothing out of the text: a new string costs Lua more than everything else here.
local function ours(text, entry)
  return text == entry or (text and byte(text, #entry + 1) == 32 and find(text, entry, 1, true) == 1)
end

local function why_unread(name)
  return failed(counter[name]) or 'CORRUPT the counter is not a number'
end

-- When c0 is older than 2 days it becomes c1, and a new c0 begins. Returns the error if that fails.
local function rotate()
  local why = begun and (failed(pcall('UNLINK', c1)) or failed(pcall('RENAME', c0, c1)))
  for i = 1, begun and #missing or 0 do
    if counter[missing[i]] == older[i] then
      counter[missing[i]] = false
    end
  end
  begun = now
  return why or failed(pcall('HSET', c0, '_', format('%-65.0f', now)))
end

-- What is known of locks and their counters (protocol §3). A part of BATCH, and of every script that may come to the
-- line. Before it: c0, c1, and max_ttl in ms.
local pcall, sub, format, byte, find = redis.pcall, string.sub, string.format, string.byte, string.find
-- By key: what stands in the lock, or false. By name: its counter, or why it cannot be read.
local lock, counter = {}, {}
-- Names whose counter was read from c1, and as what.
local missing, older = {}, {}
-- TIME in µs; where it lets a counter go at most; since when c0 is written.
local now, cap, begun

local function clock()
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
    cap = now + max_ttl * 1000
  end
end

-- What a call failed with, if it did.
local function failed(reply)
  return type(reply) == 'table' and reply.err
end

-- Whether this text in a lock is of this entry: that, or "entry seq ticket" of one that came through the line. Nothing is cut out
-- to be compared: a new text costs Lua more than all else here.
local function ours(text, entry)
  return text == entry or (text and byte(text, #entry + 1) == 32 and find(text, entry, 1, true) == 1)
end

local function why_unread(name)
  return failed(counter[name]) or 'CORRUPT the counter is not a number'
end

-- Counters older than 2 days become the previous ones (see ACQUIRE). Returns why not, where that fails.
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

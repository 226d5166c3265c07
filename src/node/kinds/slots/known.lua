-- The state of a semaphore (protocol §6). A part of its scripts, inserted after the function obey of each.
-- KEYS: slots, open, ends, line, c0, c1. In a pool whose tokens nobody sees, slots also takes the place of c0 and c1.
-- ARGV: kept ms comes first, except in INSPECT.
-- slots is a hash. limit: "version limit". bits: the slots that are taken, as SETBIT counts them. By slot: its holder's
-- entry. By entry of a holder: "slot ticket until-ms". By entry of a waiter: "heard-ms called-ms-or-0 S-ms life-ms
-- ticket channel". By "#slot": its counter, if that is not in c0.
-- ends holds the slots by the ms in which they end. line, the queue, holds entries by ticket.

-- The fleet's longest ttl in ms, as a right guard names it. A wrong guard may have any text, but then this is not used.
max_ttl = tonumber(string.match(ARGV[#ARGV], '^%d+') or 0)
-- How long the keys live without use, in ms.
lasts = math.max(tonumber(ARGV[1]) or 0, max_ttl)

-- Reads the state, and what the entry has. Returns the error if that fails.
function look(entry)
  local read = redis.pcall('HMGET', KEYS[1], 'limit', 'bits', entry)
  if read.err then
    return read
  end
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
  ms = math.floor(now / 1000)
  version, limit = string.match(read[1] or '', '^(%d+) (%d+)$')
  version, limit = tonumber(version), tonumber(limit)
  -- A text that is not a valid limit does not count: the next limit that a client brings stands.
  if not version or version > 9007199254740991 or limit > 65536 then
    version, limit = nil, nil
  end
  bits = read[2] or ''
  local mine = read[3] or ''
  slot, ticket, till = string.match(mine, '^(%d+) (%d+) (%d+)$')
  slot, till = tonumber(slot), tonumber(till)
  if not slot then
    waits, ticket = string.match(mine, '^(%d+ %d+ %d+ %d+) (%d+) ')
  end
end

function is_taken(one)
  local byte = string.byte(bits, math.floor(one / 8) + 1)
  return byte and bit.band(byte, bit.rshift(128, one % 8)) ~= 0
end

-- The first free slot from here on, below the limit.
function next_free(from)
  local one = from
  while one < (limit or 0) do
    if one % 8 == 0 then
      -- Skips bytes in which all slots are taken.
      local at = string.find(bits, '[^\255]', one / 8 + 1)
      one = at and (at - 1) * 8 or math.max(one, #bits * 8)
      if one >= limit then
        return nil
      end
    end
    if not is_taken(one) then
      return one
    end
    one = one + 1
  end
end

-- The width of the gate: how many waiters at the front of the queue may take a free slot.
function gate()
  return math.max(2, math.ceil((limit or 0) / 3))
end

local function mark(one, taken)
  local at, mask = math.floor(one / 8) + 1, bit.rshift(128, one % 8)
  bits = bits .. string.rep('\0', at - #bits)
  local byte = string.byte(bits, at)
  byte = taken and bit.bor(byte, mask) or bit.band(byte, bit.bnot(mask))
  bits = string.sub(bits, 1, at - 1) .. string.char(byte) .. string.sub(bits, at + 1)
end

-- Frees a slot, and removes its holder if that is given. Each of these writes works on a full server. ZREM comes last:
-- if a write before it fails, purge frees the slot when it ends. It is a pcall: if the key of the ends is of another
-- type, the slot is freed nevertheless.
function free(one, holder)
  redis.call('HDEL', KEYS[1], one, holder or one)
  mark(one, false)
  redis.call('HSET', KEYS[1], 'bits', bits)
  redis.pcall('ZREM', KEYS[3], one)
end

-- When the first of the taken slots ends; nil if none is taken.
function first_end()
  return tonumber(redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2])
end

-- Frees what has expired: at most 64 slots, and the slot of this entry.
function purge(entry)
  ends = first_end()
  if ends and ends < ms then
    local over = redis.call('ZRANGE', KEYS[3], '-inf', '(' .. ms, 'BYSCORE', 'LIMIT', 0, 64)
    for i, holder in ipairs(redis.call('HMGET', KEYS[1], unpack(over))) do
      -- After a MOVE that failed halfway, the holder's text names its new slot, and stays.
      local its = holder and redis.call('HGET', KEYS[1], holder)
      if its and string.match(its, '^%d+') == over[i] then
        redis.call('HDEL', KEYS[1], holder)
        if holder == entry then
          slot = nil
        end
      end
    end
    redis.call('HDEL', KEYS[1], unpack(over))
    for _, one in ipairs(over) do
      mark(tonumber(one), false)
    end
    redis.call('HSET', KEYS[1], 'bits', bits)
    -- The last write, so that what fails halfway is done by the next purge.
    redis.call('ZREM', KEYS[3], unpack(over))
    if slot and till < ms then
      free(slot, entry)
      slot = nil
    end
    ends = first_end()
  end
end

-- The semaphore was used. The keys live on if less than three quarters of their time is left, or if the queue is new.
function used(is_new)
  if is_new or redis.call('PTTL', KEYS[1]) < 3 * lasts then
    redis.call('PEXPIRE', KEYS[1], 4 * lasts)
    redis.call('PEXPIRE', KEYS[3], 4 * lasts)
    redis.call('PEXPIRE', KEYS[4], 4 * lasts)
  end
end

-- Stores the limit that a client brings, if it beats the one that stands: by a greater version, or by fewer slots of
-- the same version. Returns the first of the new slots, or nil.
function settle(v, slots)
  local other, count, before = tonumber(v), tonumber(slots), limit
  if limit and not (other > version or (other == version and count < limit)) then
    return nil
  end
  redis.call('HSET', KEYS[1], 'limit', v .. ' ' .. slots)
  version, limit = other, count
  used(false)
  return before and before < count and before or nil
end

-- Gives a free slot to an entry. is_first: no other slot is taken. ends may outlive the slots: by then they are over.
-- The end is written first: a slot without it would never be free again.
function hold(entry, one, its, ending, is_first)
  mark(one, true)
  local text = string.format('%.0f %s %.0f', one, its, ending)
  redis.call('ZADD', KEYS[3], ending, one)
  redis.call('HSET', KEYS[1], one, entry, entry, text, 'bits', bits)
  if is_first then
    redis.call('PEXPIRE', KEYS[3], 4 * lasts)
  end
  slot, ticket, till = one, its, ending
end

-- Never shortens. A full server permits PEXPIRE, and then every write after it. So PEXPIRE comes first.
function prolong(entry, ttl)
  redis.call('PEXPIRE', KEYS[3], 4 * lasts)
  till = math.max(till, ms + ttl)
  redis.call('HSET', KEYS[1], entry, string.format('%.0f %s %.0f', slot, ticket, till))
  redis.call('ZADD', KEYS[3], till, slot)
  used(false)
end

-- The newest token of a slot, its field, and the time at which c0 was begun. If it cannot be read: nil and the error.
function counter(one)
  local is_own, field = KEYS[5] == KEYS[1], '#' .. one
  local read
  if is_own then
    read = { redis.call('HGET', KEYS[5], field) }
  else
    local kind, name = string.match(KEYS[1], '^(@%l+:)(.*)$', #KEYS[2] - 3)
    field = kind .. one .. ':' .. name
    read = redis.call('HMGET', KEYS[5], field, '_')
  end
  -- A counter in c0 was made from the one in c1 and is not less, so c1 is read only if c0 has none.
  local c = tonumber(read[1] or not is_own and redis.call('HGET', KEYS[6], field) or 0)
  if not (c and c >= 0 and c <= 9007199254740992 and c % 1 == 0) then
    return nil, redis.error_reply('CORRUPT the counter is not a number')
  end
  return c, field, read[2] and tonumber(read[2])
end

-- The next token, made as ACQUIRE of a lock makes it. It is the first write.
function mint(one, p)
  local c, field, begun = counter(one)
  if not c then
    return nil, field
  end
  local floor, cap = tonumber(p), now + max_ttl * 1000
  local token = math.max(c + 1, math.min(floor, cap))
  if token > 9007199254740991 then
    return nil, redis.error_reply('EXHAUSTED the counter is at 2^53 - 1')
  end
  local text = token == floor and p or string.format('%.0f', token)
  local c0, c1 = KEYS[5], KEYS[6]
  if c0 ~= KEYS[1] then
    -- insert shared/rotate.lua
  end
  redis.call('HSET', c0, field, text)
  return token
end

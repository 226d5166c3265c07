-- JOIN (protocol §5): takes the lock if it is free and nobody waits before us; else a place in line, or keeps it.
-- Where it may only be the last, and somebody whose ticket is not less stands there or has the lock, it is answered as an ACQUIRE is.
-- KEYS     lock, open, waiting, c0, c1
-- ARGV     entry, ttl ms, p µs, place: seq, ticket, S ms, lock-delay ms, life ms, claim ms, channel; 1, where it may
--          only be the last, or 0; guard
-- RETURNS  {counter, seq}, where it is ours; {rank, PTTL, whose or nil, 1 where that is only reserved}; or
--          {PTTL, counter, whose or nil, last ticket, 1}, where it would not be the last
local seen = redis.call('MGET', KEYS[2], KEYS[1], KEYS[3])
local open = seen[1]
-- insert shared/guard.lua
local prefix, rest = string.sub(KEYS[2], 1, -5), string.sub(KEYS[1], #KEYS[2] + 4)
local queue, places = prefix .. '@mutex-line:' .. rest, prefix .. '@mutex-waiters:' .. rest
local from, waiting, c0, c1 = #prefix + 1, seen[3], KEYS[4], KEYS[5]
local max_ttl = string.match(guard, '^%d+')
-- The short way of a JOIN of a lock that somebody has and others wait for (protocol §5). A part of JOIN. All
-- else, and what fails here, is the long way.
local text, entry, over = seen[2], ARGV[1], tonumber(seen[3] or 0)
local only_last = ARGV[11] == '1'
if over and text and string.find(text, entry, 1, true) ~= 1
  and not (only_last and tonumber(string.match(text, ' (%d+)$') or 0) >= tonumber(ARGV[5])) then
  local time, least, left = redis.call('TIME'), 3 * ARGV[8], redis.pcall('PTTL', queue)
  local last = only_last and redis.pcall('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
  local ms = time[1] * 1000 + math.floor(time[2] / 1000)
  -- The line need not be made to live longer.
  if type(left) == 'number' and left >= least and over - ms >= least
    and not (last and tonumber(last) >= tonumber(ARGV[5])) then
    local is_new = redis.pcall('HSET', places, entry,
      string.format('%.0f ', ms) .. ARGV[4] .. ' ' .. ARGV[6] .. ' ' .. ARGV[7] .. ' ' .. ARGV[8] .. ' ' .. ARGV[9] .. ' 0 ' .. ARGV[10])
    if is_new == 1 and type(redis.pcall('ZADD', queue, ARGV[5], entry)) ~= 'number' then
      is_new = nil
    end
    local rank = redis.pcall('ZRANK', queue, entry)
    if type(is_new) == 'number' and type(rank) == 'number' then
      return { rank, redis.call('PTTL', KEYS[1]), string.sub(text, 1, 160), 0 }
    end
  end
end
-- insert mutex/common.lua
-- insert mutex/tell.lua
-- insert mutex/line.lua
about(KEYS[1])
lock[KEYS[1]] = seen[2]
local answer = join(only_last, KEYS[1], unpack(ARGV, 1, 10))
return type(answer) == 'string' and redis.error_reply(answer) or answer

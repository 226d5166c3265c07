-- The short way of a JOIN of a lock that somebody has and others wait for (protocol §5). A part of JOIN. All
-- else, and what fails here, is the long way.
local text, entry, over = seen[2], ARGV[1], tonumber(seen[3] or 0)
local only_last = ARGV[11] == '1'
if over and text and string.find(text, entry, 1, true) ~= 1
  and not (only_last and tonumber(string.match(text, ' (%d+)$') or 0) >= tonumber(ARGV[5])) then
  local time, least, left = redis.call('TIME'), 3 * ARGV[8], redis.pcall('PTTL', q)
  local last = only_last and redis.pcall('ZRANGE', q, -1, -1, 'WITHSCORES')[2]
  local ms = time[1] * 1000 + math.floor(time[2] / 1000)
  -- The line need not be made to live longer.
  if type(left) == 'number' and left >= least and over - ms >= least
    and not (last and tonumber(last) >= tonumber(ARGV[5])) then
    local is_new = redis.pcall('HSET', qh, entry,
      string.format('%.0f ', ms) .. ARGV[4] .. ' ' .. ARGV[6] .. ' ' .. ARGV[7] .. ' ' .. ARGV[8] .. ' ' .. ARGV[9] .. ' 0 ' .. ARGV[10])
    if is_new == 1 and type(redis.pcall('ZADD', q, ARGV[5], entry)) ~= 'number' then
      is_new = nil
    end
    local rank = redis.pcall('ZRANK', q, entry)
    if type(is_new) == 'number' and type(rank) == 'number' then
      return { rank, redis.call('PTTL', KEYS[1]), string.sub(text, 1, 160), 0 }
    end
  end
end

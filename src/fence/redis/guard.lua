-- GUARD: commands that are done only by a holder that is not stale
-- KEYS     mark, then the keys that the commands touch
-- ARGV     token, ms to keep the mark (0: for ever), then for each command: how many words, the words
-- RETURNS  {1, reply, ..}, or {0, newest token} if the token is stale
-- The mark is written first: if that fails (a full server) nothing was done.
-- Tokens are compared as numbers and written as they came.

local find, call = string.find, redis.call
local token, keep, mine, newest = ARGV[1], 0, nil, nil

-- Digits only: tonumber takes nan, inf, fractions and hexadecimals too. Below 2^53 a double is exact.
if token and find(token, '^%d+$') then
  mine = tonumber(token)
end
if not mine or mine >= 9007199254740992 then
  return redis.error_reply('ERR the first argument is no fencing token')
end
if ARGV[2] ~= '0' then
  keep = ARGV[2] and find(ARGV[2], '^%d+$') and tonumber(ARGV[2])
  if not keep or keep >= 9007199254740992 then
    return redis.error_reply('ERR the second argument is no time in ms')
  end
end
local mark = call('GET', KEYS[1])
if mark and mark ~= token then
  if find(mark, '^%d+$') then
    newest = tonumber(mark)
  end
  if not newest or newest >= 9007199254740992 then
    return redis.error_reply('ERR ' .. KEYS[1] .. ' holds no fencing token')
  end
  if mine < newest then
    return { 0, mark }
  end
end
-- A mark that was to stay for ever, or for longer, does so, as somebody relies on that. Only SET writes
-- it, because a full server refuses that; after PEXPIRE or PERSIST it would obey all that follows.
local left = mark and (mark == token or keep > 0) and call('PTTL', KEYS[1]) or -2
if keep == 0 or left == -1 then
  if mark ~= token or left ~= -1 then
    call('SET', KEYS[1], token)
  end
elseif mark ~= token or left < keep then
  call('SET', KEYS[1], token, 'PX', math.max(left, keep))
end
local replies, at, n = { 1 }, 3, 1
while ARGV[at] do
  local last = at + ARGV[at]
  n = n + 1
  replies[n] = call(unpack(ARGV, at + 1, last))
  at = last + 1
end
return replies

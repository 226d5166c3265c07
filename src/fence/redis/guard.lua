-- GUARD: commands that are done only by a holder that is not stale
-- KEYS     mark, then the keys that the commands touch
-- ARGV     token, ms to keep the mark (0: for ever), then for each command: how many words, the words
-- RETURNS  {1, reply, ..}, or {0, newest token} where the token is stale
-- The mark is written first: where that fails (a full server) nothing was done.
-- Tokens are compared as numbers and written as they came.
local token, keep = ARGV[1], ARGV[2]
local mark = redis.call('GET', KEYS[1])
if mark ~= token then
  if mark then
    local newest = tonumber(mark)
    if not newest then
      return redis.error_reply('ERR ' .. KEYS[1] .. ' holds no fencing token')
    end
    if tonumber(token) < newest then
      return { 0, mark }
    end
  end
  redis.call('SET', KEYS[1], token)
end
if keep ~= '0' then
  redis.call('PEXPIRE', KEYS[1], keep)
end
local replies, at = { 1 }, 3
while ARGV[at] do
  local last = at + ARGV[at]
  replies[#replies + 1] = redis.call(unpack(ARGV, at + 1, last))
  at = last + 1
end
return replies

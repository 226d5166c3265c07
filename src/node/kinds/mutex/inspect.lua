-- INSPECT: the holder, its remaining time, the newest token, and the waiters.
-- KEYS     lock, open, line, c0, c1
-- ARGV     counter field, guard
-- RETURNS  {text in the lock or nil, PTTL, counter, TIME µs, number of waiters, entry, ticket, …}: the first
--          100 waiters
local open = redis.call('GET', KEYS[2])
-- insert shared/guard.lua
local c = tonumber(redis.call('HGET', KEYS[4], ARGV[1]) or redis.call('HGET', KEYS[5], ARGV[1]) or 0)
-- insert shared/counter.lua
local time = redis.call('TIME')
local answer = { redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]), c, time[1] * 1000000 + time[2],
  redis.call('ZCARD', KEYS[3]) }
for i, word in ipairs(redis.call('ZRANGE', KEYS[3], 0, 99, 'WITHSCORES')) do
  answer[5 + i] = i % 2 == 0 and tonumber(word) or word
end
return answer

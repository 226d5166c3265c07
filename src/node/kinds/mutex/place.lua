about(KEYS[1])
lock[KEYS[1]] = seen[2]
local answer = join(only_last, KEYS[1], unpack(ARGV, 1, 10))
return type(answer) == 'string' and redis.error_reply(answer) or answer

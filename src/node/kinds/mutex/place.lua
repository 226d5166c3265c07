about(KEYS[1])
lock[KEYS[1]] = seen[2]
local answer = join(KEYS[1], unpack(ARGV, 2, #ARGV - 1))
return type(answer) == 'string' and redis.error_reply(answer) or answer

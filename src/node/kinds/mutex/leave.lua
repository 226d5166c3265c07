about(KEYS[1])
lock[KEYS[1]] = seen[1]
local answer = leave(KEYS[1], ARGV[1], ARGV[2], admitted, token)
return type(answer) == 'string' and redis.error_reply(answer) or answer

-- Calls obey, which the including script defines. If that fails midway, a key that it has just made may have no expiry
-- yet. Such a key gets one, or is deleted. The including script defines lasts, in ms, and keys, the places in KEYS.
local done, answer = pcall(obey)
if not done or (type(answer) == 'table' and answer.err) then
  for _, i in ipairs(keys) do
    local set = redis.pcall('PEXPIRE', KEYS[i], 4 * lasts, 'NX')
    if type(set) == 'table' and redis.pcall('PTTL', KEYS[i]) == -1 then
      redis.pcall('DEL', KEYS[i])
    end
  end
end
return type(answer) == 'string' and redis.error_reply(answer) or answer

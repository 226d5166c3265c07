-- A part of ACQUIRE and of RELEASE, behind BATCH: the answer of a batch of one, as their own.
local all = batch()
if all == 1 then
  return as_asked
end
local answer = all[1]
return type(answer) == 'string' and redis.error_reply(answer) or answer

-- The units that count in an interval (protocol §7). A part of SPEND and of LOOK.
local time = redis.call('TIME')
now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Returns {last bucket, era, its units, the units of the bucket before it, …}, and true if the clock went back. If it
-- cannot be read: nil and the error.
function load(key, ahead, width)
  local top = math.ceil((now + ahead) / width)
  local packed = redis.call('GET', key)
  if not packed then
    return { top, now, 0 }
  end
  local good, known = pcall(cmsgpack.unpack, packed)
  if not good or type(known) ~= 'table' or #known < 3 then
    return nil, redis.error_reply('CORRUPT the units that count cannot be read')
  end
  local beyond = known[1] - top
  if beyond == 0 then
    return known
  end
  local ledger = { top, beyond > 0 and now or known[2], 0 }
  -- Nobody used units in between, so buckets without units are put there.
  for i = 4, math.min(2 - beyond, 32) do
    ledger[i] = 0
  end
  for i = 3, #known do
    local at = i - beyond
    if at <= 3 and beyond > 0 then
      ledger[3] = ledger[3] + known[i]
    elseif at <= 32 then
      ledger[at] = known[i]
    end
  end
  return ledger, beyond > 0
end

-- LOOK (protocol §7): the units that are taken, and when they are free.
-- KEYS     first interval, open, other intervals
-- ARGV     for each interval: A ms, E ms, b ms; guard
-- RETURNS  for each interval: {ms until they are free, units, …}, those that are free first come first
local open = redis.call('GET', KEYS[2])
-- insert shared/guard.lua
-- Defined by ledger.lua, which is inserted below.
local now, load

local function obey()
  local answer = {}
  for n = 1, #KEYS - 1 do
    local kept, ahead, width = tonumber(ARGV[3 * n - 2]), tonumber(ARGV[3 * n - 1]), tonumber(ARGV[3 * n])
    local ledger, why = load(KEYS[n == 1 and 1 or n + 1], ahead, width)
    if not ledger then
      return why
    end
    local taken = {}
    for i = #ledger, 3, -1 do
      local left = (ledger[1] - i + 3) * width + kept - now
      if left > 0 and ledger[i] > 0 then
        taken[#taken + 1] = left
        taken[#taken + 1] = ledger[i]
      end
    end
    answer[n] = taken
  end
  return answer
end
-- insert rate/ledger.lua
return obey()

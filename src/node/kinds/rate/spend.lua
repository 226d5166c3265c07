-- SPEND (protocol §7): takes units of every interval, or of none.
-- KEYS     first interval, open, other intervals
-- ARGV     units, age ms, for each interval: its share, A ms, E ms, b ms; guard
-- RETURNS  {1, room left, bucket, era, …}, with these three for each interval, or {0, ms until there is room or -1,
--          room, …}, with the room of each interval
local open = redis.call('GET', KEYS[2])
-- insert shared/guard.lua
-- Defined by ledger.lua, which is inserted below.
local now, load

local function obey()
  local units, age, ceil = tonumber(ARGV[1]), tonumber(ARGV[2]), math.ceil
  local wait, full = 0, false
  local ledgers, moved, each = {}, {}, {}
  for n = 1, #KEYS - 1 do
    local at = 4 * n - 1
    local share, kept, ahead, width = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
    local key = KEYS[n == 1 and 1 or n + 1]
    local ledger, went_back = load(key, ahead, width)
    if not ledger then
      return went_back
    end
    -- The index of the last bucket that still counts.
    local last, taken = math.min(#ledger, 3 + ceil(ledger[1] - (now - kept) / width) - 1), 0
    for i = 3, last do
      taken = taken + ledger[i]
    end
    local left = math.max(0, share - taken)
    if units > left then
      full = true
      if units > share then
        wait = -1
      elseif wait >= 0 then
        local rest = taken
        for i = last, 3, -1 do
          if rest <= share - units then
            break
          elseif ledger[i] > 0 then
            rest = rest - ledger[i]
            wait = math.max(wait, (ledger[1] - i + 3) * width + kept - now)
          end
        end
      end
    end
    ledgers[n], moved[n], each[n] = ledger, went_back, { key, kept, ahead, width, left }
  end
  local answer = full and { 0, wait } or { 1 }
  for n, ledger in ipairs(ledgers) do
    local key, kept, ahead, width, left = unpack(each[n])
    if not full then
      local bucket = ceil((now + math.min(age, ahead)) / width)
      local i = ledger[1] - bucket + 3
      for zero = #ledger + 1, i do
        ledger[zero] = 0
      end
      ledger[i] = ledger[i] + units
      answer[3 * n - 1], answer[3 * n], answer[3 * n + 1] = left - units, bucket, ledger[2]
    else
      answer[n + 2] = left
    end
    if not full or moved[n] then
      redis.call('SET', key, cmsgpack.pack(ledger), 'PX', ledger[1] * width + kept - now)
    end
  end
  return answer
end
-- insert rate/ledger.lua
return obey()

-- REFUND (protocol §7): gives back units that nobody will use, if their bucket and era still count.
-- KEYS     first interval, open, other intervals
-- ARGV     units, for each interval: bucket, era; guard
-- RETURNS  the number of intervals to which they went back
local open = redis.call('GET', KEYS[2])
-- insert shared/guard.lua
local back = 0
for n = 1, #KEYS - 1 do
  local key, bucket, era = KEYS[n == 1 and 1 or n + 1], tonumber(ARGV[2 * n]), tonumber(ARGV[2 * n + 1])
  local packed = redis.call('GET', key)
  local good, known = pcall(cmsgpack.unpack, packed or '')
  if good and type(known) == 'table' and known[2] == era then
    local i = known[1] - bucket + 3
    if i >= 3 and known[i] then
      known[i] = math.max(0, known[i] - tonumber(ARGV[1]))
      redis.call('SET', key, cmsgpack.pack(known), 'KEEPTTL')
      back = back + 1
    end
  end
end
return back

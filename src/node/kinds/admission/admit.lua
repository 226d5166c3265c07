-- ADMIT (protocol §2), the last step of a bootstrap: the memory of this run and record votes from now on.
-- KEYS     boot, open
-- ARGV     format, N, list, run, id, max_ttl ms, M ms, w ms, mode: new, raise or forced
-- RETURNS  1; 0 if the record is another one, has greater terms, or is ruled out by the mode
-- There is no guard, because the node may not vote yet.
local max_ttl, margin, w, mode = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
local boot = redis.call('GET', KEYS[1])
local n, list, max_ttl1, margin1, run, id, _, u, w1 =
  string.match(boot or '', '^' .. ARGV[1] .. ' (%d+) (%S+) (%d+) (%d+) (%S+) (%S+) ([01]) ([01]) (%d+)$')
if not n or #w1 > 15 or n ~= ARGV[2] or list ~= ARGV[3] or run ~= ARGV[4] or id ~= ARGV[5] then
  return 0
end
max_ttl1, margin1, w1 = tonumber(max_ttl1), tonumber(margin1), tonumber(w1)
if max_ttl1 > max_ttl or margin1 > margin then
  return 0
end
if mode == 'new' and u == '1' then
  return 0
end
if mode == 'raise' and w1 < max_ttl1 + math.ceil(max_ttl1 / 100) + margin1 then
  return 0
end
redis.call('SET', KEYS[1], string.format('%s %s %s %.0f %.0f %s %s 1 %s %.0f', ARGV[1], n, list, max_ttl,
  margin, run, id, u, math.max(w, w1)))
redis.call('SET', KEYS[2], string.format('%.0f %s %s %s %.0f %s', max_ttl, ARGV[1], n, list, margin, id))
return 1

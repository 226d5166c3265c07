-- ADMIT (protocol §2): the memory of this run and record votes from now on; the last step of a bootstrap.
-- KEYS     boot, open
-- ARGV     format, run, id, max_ttl ms, w ms
-- RETURNS  1; 0, where it is another run or record, or one of a longer max_ttl
-- No guard: the node does not vote yet.
local boot = redis.call('GET', KEYS[1])
local format, fleet, run, id, max_ttl, _, since =
  string.match(boot or '', '^(%d+) (%d+) (%S+) (%S+) (%d+) (%d+) (%d+)$')
if format ~= ARGV[1] or run ~= ARGV[2] or id ~= ARGV[3] or tonumber(max_ttl) > tonumber(ARGV[4]) then
  return 0
end
redis.call('SET', KEYS[1], table.concat({ format, fleet, run, id, ARGV[4], ARGV[5], since }, ' '))
redis.call('SET', KEYS[2], table.concat({ format, fleet, ARGV[4] }, ' '))
return 1

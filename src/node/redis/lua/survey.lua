-- SURVEY (protocol §2): is any lock held under the prefix? Asked once, before a bootstrap.
-- KEYS     none
-- ARGV     pattern of the lock keys
-- RETURNS  1; 0, where there is none
-- No guard: the node does not vote yet.
local cursor = '0'
repeat
  local page = redis.call('SCAN', cursor, 'MATCH', ARGV[1], 'COUNT', 1000)
  if #page[2] > 0 then
    return 1
  end
  cursor = page[1]
until cursor == '0'
return 0

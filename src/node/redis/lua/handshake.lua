-- HANDSHAKE (protocol §2): which memory is this, and may it vote?
-- KEYS     boot, open, time
-- ARGV     format, N, mine ms, fleet ms, margin ms, run0, id0, x ms, nonce
-- RETURNS  {role, mode, eviction, version, run, TIME µs, boot or nil, 1 where open now stands}
-- No guard: this script makes it. One INFO, and only what changed is written; nothing on a replica,
-- in a cluster, or where another format, another N or a shorter max_ttl is in use.
-- admission.rs says the same in Rust.
local format, fleet, mine, fleet_max = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local margin, run0, id0, x, nonce = tonumber(ARGV[5]), ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9]

local info = '\n' .. redis.call('INFO', 'server', 'replication', 'memory')
local function field(name)
  local _, colon = string.find(info, '\n' .. name .. ':', 1, true)
  return colon and string.match(info, '^[^\r\n]*', colon + 1)
end
local role = field('role') or ''
local mode = field('redis_mode') or field('server_mode') or ''
local version = field('valkey_version') or field('redis_version') or ''
local run_id = field('run_id') or ''
local run = run_id .. '/' .. string.sub(field('master_replid2') or '', 1, 8) .. '/'
  .. (field('second_repl_offset') or '')
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local boot = redis.call('GET', KEYS[1])
local function answer(record, open)
  return { role, mode, field('maxmemory_policy') or '', version, run, now, record, open }
end
if role ~= 'master' or mode ~= 'standalone' then
  return answer(boot, 0)
end

local id, max_ttl, w, since = nonce, math.max(mine, fleet_max), 0, string.format('%.0f', now)
if boot then
  local format1, fleet1, run1, id1, max_ttl1, w1, since1 =
    string.match(boot, '^(%d+) (%d+) (%S+) (%S+) (%d+) (%d+) (%d+)$')
  if format1 ~= format or fleet1 ~= fleet then
    return answer(boot, 0)
  end
  -- replid2 turned to zeros: the same memory, the server has only freed its backlog.
  local same = run1 == run
    or (run == run_id .. '/00000000/-1' and string.sub(run1, 1, #run_id + 1) == run_id .. '/')
  if same then
    id, max_ttl, w, since = id1, math.max(tonumber(max_ttl1), fleet_max), tonumber(w1), since1
    if mine > max_ttl then
      return answer(boot, 0)
    end
    local z = max_ttl + math.ceil(max_ttl / 100) + margin
    if run0 == run1 and id0 == id1 and w < z then
      w = math.max(w, x)
    end
  end
end

local record = string.format('%s %s %s %s %.0f %.0f %s', format, fleet, run, id, max_ttl, w, since)
local guard = string.format('%s %s %.0f', format, fleet, max_ttl)
local votes = w >= max_ttl + math.ceil(max_ttl / 100) + margin
local open = redis.call('GET', KEYS[2])
-- Closed first: a full server refuses SET, never DEL, and nobody may vote meanwhile.
if open and (not votes or open ~= guard) then
  redis.call('DEL', KEYS[2])
end
if record ~= boot then
  redis.call('SET', KEYS[1], record)
end
if votes and open ~= guard then
  redis.call('SET', KEYS[2], guard)
end
-- For ACQUIRE, which then seldom has to ask for TIME. A full server refuses it: no harm is done.
local left = tonumber(redis.call('GET', KEYS[3]) or '')
if not left or math.abs(now - left) >= 1000000 then
  redis.pcall('SET', KEYS[3], string.format('%.0f', now))
end
return answer(record, votes and 1 or 0)

-- HANDSHAKE (protocol §2): finds out which memory this is, and whether it may vote.
-- KEYS     boot, open, time
-- ARGV     format, N, list, max_ttl ms, M ms, v, u, run0, id0, x ms, nonce
-- RETURNS  {role, mode, eviction, version, run, boot or nil, 1 if open stands now, TIME in µs, the result of writing
--          time: nil if it was not tried; its error; an empty text if the server takes writes}
-- There is no guard, because this script makes it. It calls INFO once, and writes only what changed. meet.rs says the
-- same in Rust. The numbers are those of protocol §2.
local format, n, list, nonce = ARGV[1], ARGV[2], ARGV[3], ARGV[11]
local max_ttl, margin = tonumber(ARGV[4]), tonumber(ARGV[5])
local v, u, run0, id0, x = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8], ARGV[9], tonumber(ARGV[10])

-- INFO begins with a heading, so a line break stands before every field.
local info = redis.call('INFO', 'server', 'replication', 'memory')
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

-- The queue makes its keys itself. A server that lets a script use no key outside KEYS raises its error here.
redis.call('PTTL', string.sub(KEYS[3], 1, -5) .. 'waiting')

local boot = redis.call('GET', KEYS[1])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local refused = false
local function answer(record, open)
  return { role, mode, field('maxmemory_policy') or '', version, run, record, open, now, refused }
end
-- 1
if role ~= 'master' or mode ~= 'standalone' then
  return answer(boot, 0)
end

local function z(ttl, m)
  return ttl + math.ceil(ttl / 100) + m
end

local old
if boot then
  local first, words = string.match(boot, '^([^ ]*) ?(.*)$')
  local is_other = string.match(first, '^%d+$') and string.match(first, '^0*(.*)$') ~= format
  local o = { string.match(words, '^(%d+) (%S+) (%d+) (%d+) (%S+) (%S+) ([01]) ([01]) (%d+)$') }
  if is_other then
    -- 3: a record of another format. If it is of this run, nothing is written.
    if string.find(boot, run_id, 1, true) then
      return answer(boot, 0)
    end
    -- It may have been used, because its u may have another meaning. Its terms count in any format. A record whose
    -- remaining words have another form counts as vouched for.
    u = 1
    if not o[1] or #o[9] > 15 then
      o = { string.match(words, '^(%d+) (%S+) (%d+) (%d+) ') }
      o[5], o[6], o[7], o[8], o[9] = '', '', '1', '1', '0'
    end
  end
  -- 2a
  if is_other and list == 'throwaway' then
    return answer(boot, 0)
  end
  if is_other or first == format then
    if o[1] and #o[1] < 16 and #o[3] < 16 and #o[4] < 16 and #o[9] < 16 then
      old = { n = tonumber(o[1]), list = o[2], max_ttl = tonumber(o[3]), margin = tonumber(o[4]), run = o[5],
        id = o[6], v = tonumber(o[7]), u = tonumber(o[8]), w = tonumber(o[9]) }
      -- Terms above 24 h are not valid.
      if old.max_ttl > 86400000 or old.margin > 86400000 then
        old = nil
      end
    end
  end
  if old and not is_other and old.list ~= list then
    if list == 'throwaway' then
      return answer(boot, 0)
    elseif old.list == 'throwaway' then
      old = nil
    end
  end
end

-- Each handshake of the record's own fleet leaves TIME in the key. MGET, because a key of another type counts as none.
local left = tonumber(redis.call('MGET', KEYS[3])[1] or '')
local visited = left and math.abs(now - left) < 3000000

local mine, voted, same
if old then
  mine = old.n == tonumber(n) and old.list == list
  voted = old.w >= z(old.max_ttl, old.margin)
  -- If replid2 has turned to zeros it is the same memory: the server has only freed its backlog.
  same = old.run == run
    or (run == run_id .. '/00000000/-1' and string.sub(old.run, 1, #run_id + 1) == run_id .. '/')
end
-- 2 and 4
local new = not same
if same and not voted and v >= 1 then
  local more = old.max_ttl > max_ttl or old.margin > margin
  new = not mine or (more and (old.v == 0 or v == 2))
elseif same and not voted then
  -- A client that stays has read this record before. A client that only looks is gone by then.
  new = not mine and old.v == 0 and not visited and run0 == old.run and id0 == old.id
end
-- 5
if not new and not mine then
  return answer(boot, 0)
end

local id, w, before = nonce, 0, 0
local v1, u1 = math.min(v, 1), u
if new and old then
  u1 = math.max(u, old.u, voted and 1 or 0)
  if mine and v < 2 and (voted or old.v == 1) then
    -- The node came back from a disk. It keeps the terms under which it voted.
    v1 = 1
    if v == 0 and list ~= 'throwaway' then
      max_ttl, margin = old.max_ttl, old.margin
    else
      max_ttl, margin = math.max(max_ttl, old.max_ttl), math.max(margin, old.margin)
    end
  end
elseif not new then
  id, w, before, u1 = old.id, old.w, old.w, math.max(u, old.u)
  -- 6
  if v >= 1 or list == 'throwaway' or (old.v == 0 and not voted) then
    max_ttl, margin = math.max(max_ttl, old.max_ttl), math.max(margin, old.margin)
    v1 = math.max(v1, old.v)
  else
    max_ttl, margin, v1 = old.max_ttl, old.margin, old.v
  end
  -- 7
  if run0 == old.run and id0 == old.id then
    w = math.max(w, math.min(x, math.max(97200000, z(max_ttl, margin))))
  end
end

local head = string.format('%s %s %s %.0f %.0f %s %s %d %d ', format, n, list, max_ttl, margin, run,
  id, v1, u1)
local record = head .. string.format('%.0f', w)
local guard = string.format('%.0f %s %s %s %.0f %s', max_ttl, format, n, list, margin, id)
local votes = w >= z(max_ttl, margin)
local open = redis.call('GET', KEYS[2])
-- 8. Closed before anything is set: a full server refuses SET, never DEL, and the node may not vote meanwhile.
if open and (not votes or open ~= guard) then
  redis.call('DEL', KEYS[2])
end
-- 9. Beyond Z, a change of w alone is written only when w has grown by 1 %. A full server that votes goes on voting: it
-- grants nothing, but leases there are renewed.
local set = votes and open == guard and redis.pcall or redis.call
local changed = not boot or string.sub(boot, 1, #head) ~= head
if changed or before < z(max_ttl, margin) or (w > before and w * 100 >= before * 101) then
  set('SET', KEYS[1], record)
end
-- 10
if votes and open ~= guard then
  redis.call('SET', KEYS[2], guard)
end
-- This also serves ACQUIRE of several names, which then seldom has to ask for TIME. And it tells whether the server
-- takes writes. NX on a key that stands writes nothing, and a server that refuses writes refuses it all the same.
local done
if left and math.abs(now - left) < 1000000 then
  done = redis.pcall('SET', KEYS[3], string.format('%.0f', now), 'NX')
else
  done = redis.pcall('SET', KEYS[3], string.format('%.0f', now))
end
refused = done and done.err or ''
return answer(record, votes and 1 or 0)

-- Who is told that it is next in line (protocol §5). A part of every script that may hand over.

-- Of one who waits, as it stands in qh: when it was heard of, by which request, S, and its channel.
local function known(w)
  if type(w) == 'string' then
    return string.match(w, '^(%d+) (%d+) (%d+) %d+ %d+ %d+ %d+ (.+)$')
  end
end

-- Who stands behind the head is told when to ask. It need not hear that. One of the head's own process may have vanished
-- with it: then the last in line is told, if it is another's and hears it. w: as it stands in qh; channel: the head's.
local function tell(q, qh, entry, w, after, channel, ms)
  local beat, seq, term, its = known(w)
  if not its then
    return
  end
  if its == channel then
    local last = redis.pcall('ZRANGE', q, -1, -1)[1]
    local _, _, _, others = known(last ~= entry and redis.pcall('HGET', qh, last))
    local heard = others and others ~= channel and redis.pcall('SPUBLISH', others, 'N ' .. last .. ' ' .. after)
    if type(heard) == 'number' and heard > 0 then
      return
    end
  end
  -- Who has only just come asks again soon, told or not.
  local age = ms - beat
  if seq ~= '1' or age < 0 or age * 4 > tonumber(term) or tonumber(term) > after * 4 then
    redis.pcall('SPUBLISH', its, 'N ' .. entry .. ' ' .. after)
  end
end

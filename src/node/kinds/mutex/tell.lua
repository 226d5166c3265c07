-- Who is told that it is next in line (protocol §5). A part of every script that may hand over.

-- The channel of one who waits, as it stands in qh.
local function channel_of(w)
  return type(w) == 'string' and string.match(w, '^%d+ %d+ %d+ %d+ %d+ %d+ %d+ (.+)$')
end

-- Who stands behind the head is told when to ask. It need not hear that. One of the head's own process may have vanished
-- with it: then the last in line is told, if it is another's and hears it. w: as it stands in qh; channel: the head's.
local function tell(q, qh, entry, w, after, channel)
  local its = channel_of(w)
  if its and its == channel then
    local last = redis.pcall('ZRANGE', q, -1, -1)[1]
    local others = last ~= entry and channel_of(redis.pcall('HGET', qh, last))
    local heard = others and others ~= channel and redis.pcall('PUBLISH', others, 'N ' .. last .. ' ' .. after)
    if type(heard) == 'number' and heard > 0 then
      return
    end
  end
  if its then
    redis.pcall('PUBLISH', its, 'N ' .. entry .. ' ' .. after)
  end
end

-- Tells a waiter that it is next in the queue (protocol §5). A part of every script that may hand over a lock.

-- Parses the text of a waiter in qh: when it was heard of, the seq of that request, S, and its channel.
local function known(w)
  if type(w) == 'string' then
    return string.match(w, '^(%d+) (%d+) (%d+) %d+ %d+ %d+ %d+ (.+)$')
  end
end

-- Tells the waiter behind the head when to ask. That waiter need not hear it. If it is of the head's process, both may
-- have vanished together. Then the last waiter in the queue is told instead, if it is of another process and hears it.
-- w: the waiter's text in qh; channel: the head's.
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
  -- A waiter that has only just come asks again soon anyway.
  local age = ms - beat
  if seq ~= '1' or age < 0 or age * 4 > tonumber(term) or tonumber(term) > after * 4 then
    redis.pcall('SPUBLISH', its, 'N ' .. entry .. ' ' .. after)
  end
end

-- Each operation (protocol §3, §5). A part of BATCH.
-- Who was granted a lock. Their counters are written together at the end.
local minted = {}
local at = 3
for i = 1, n do
  local letter, key, entry = letters[i], KEYS[i + 2], ARGV[at]
  local answer, right
  if letter == 82 then
    local p = ARGV[at + 1]
    at = at + 2
    -- The guard decides the answer, never the deed.
    if waiting and has_line(i) then
      if #freed > 0 then
        free()
      end
      answer = leave(i, key, entry, p)
      right = answer == 1
    elseif lock[key] == entry or ours(lock[key], entry) then
      lock[key] = false
      freed[#freed + 1] = key
      freed_by[#freed_by + 1] = i
      answer, right = admitted and 1 or -1, admitted
    else
      answer = admitted and 0 or -1
    end
  elseif letter == 65 then
    local ttl, p = ARGV[at + 1], ARGV[at + 2]
    at = at + 3
    if admitted and waiting and has_line(i) then
      if #freed > 0 then
        free()
      end
      answer = behind(i, key, p)
    end
    local c = admitted and tonumber(counter[field[i]] or 0)
    if not admitted then
      answer = 'NOT_ADMITTED this memory may not vote'
    elseif answer then
      right = false
    elseif not (c and c >= 0 and c <= 9007199254740992 and c % 1 == 0) then
      answer = why_unread(i)
    else
      if #freed > 0 then
        free()
      end
      local floor = tonumber(p)
      -- The floor is capped, never ignored: ignored, one token was given out twice after a restart.
      local token = floor < cap and floor or cap
      if token <= c then
        token = c + 1
      end
      local exhausted = token > 9007199254740991
      local set = not exhausted and pcall('SET', key, entry, 'NX', 'PX', ttl)
      answer = set and set.err
      if not set then
        answer = refused(key, c, exhausted)
      elseif not answer then
        lock[key] = entry
        if not (begun and now - begun <= 604800000000) then
          answer = rotate()
        end
      end
      if not answer then
        answer, right = token, token == floor
        minted[#minted + 1] = i
        -- p is written as it came where it is the token, as it mostly is: formatting costs half a microsecond.
        counter[field[i]] = right and p or string.format('%.0f', token)
      end
    end
  elseif letter == 74 or letter == 89 then
    local place = at + (letter == 74 and 3 or 2)
    local ttl, p = ARGV[at + 1], ARGV[place - 1]
    at = place + 7
    if not admitted then
      answer = 'NOT_ADMITTED this memory may not vote'
    else
      if #freed > 0 then
        free()
      end
      if letter == 74 then
        answer, right = join(i, key, entry, ttl, p, place)
      else
        answer, right = yield(i, key, entry, p, place)
      end
    end
  else
    local number = ARGV[at + 1]
    at = at + 2
    if not admitted then
      answer = 'NOT_ADMITTED this memory may not vote'
    elseif not (lock[key] == entry or ours(lock[key], entry)) then
      answer = letter == 84 and -1 or 0
    elseif letter == 84 then
      answer, right = raise(i, key, number)
    else
      -- GT: never shortens. A key that is gone stays gone.
      local why = failed(pcall('PEXPIRE', key, number, 'GT'))
      answer, right = why or 1, not why
    end
  end
  answers[i] = answer
  as_asked = as_asked and right
end

if #freed > 0 then
  free()
end
if #minted > 0 then
  local written = {}
  for place, i in ipairs(minted) do
    written[2 * place - 1] = field[i]
    written[2 * place] = counter[field[i]]
  end
  local why = failed(pcall('HSET', c0, unpack(written)))
  if why then
    as_asked = false
    for _, i in ipairs(minted) do
      answers[i] = why
    end
  end
end
return as_asked and n or answers

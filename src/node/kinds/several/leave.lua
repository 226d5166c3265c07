  for i = 3, #KEYS do
    local key = KEYS[i]
    lock[key] = seen[i]
    if has_line(key) then
      local answer = leave(key, entry, ARGV[2], admitted)
      if type(answer) == 'string' then
        return redis.error_reply(answer)
      end
    end
  end
end
return admitted and freed or -1

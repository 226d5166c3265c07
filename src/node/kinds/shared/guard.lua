-- The guard (protocol §2): a memory that may not vote does nothing. The including script sets open to the text of the
-- key.
local guard = ARGV[#ARGV]
if open ~= guard then
  return redis.error_reply('NOT_ADMITTED this memory may not vote')
end

std = "lua51"
max_line_length = false
read_globals = { "redis", "bit", "cmsgpack", "KEYS", "ARGV" }
ignore = {
  -- A script needs only some of what a shared piece brings.
  "211",
  "221",
  "231",
  -- A shared piece may use a name that stands in the script around it.
  "431",
  "432",
}

#!/usr/bin/env bash
# tests/lua.sh
#
# Parses each Lua file alone. It also looks for mistakes in each script in the form that a server gets, in target/lua/:
# there the shared pieces replace the lines that name them (src/node/wire/script.rs). luac and luacheck come from
# Debian's lua5.1 and lua-check.
set -euo pipefail
shopt -s globstar

cd "$(dirname "${BASH_SOURCE[0]}")/.."
kinds=src/node/kinds
whole=target/lua

luac5.1 -p $kinds/**/*.lua src/fence/redis/*.lua

rm -rf $whole
shared=$(sed -n 's/^ *-- insert //p' $kinds/**/*.lua | sort -u)
for piece in $shared; do
  [[ -f $kinds/$piece ]] || { echo "lua.sh: a marker line names $piece, which is not in $kinds" >&2 && exit 1; }
done
for file in $kinds/**/*.lua; do
  name=${file#"$kinds"/}
  grep -qxF "$name" <<<"$shared" && continue
  mkdir -p "$whole/${name%/*}"
  cp "$file" "$whole/$name"
  # A shared piece may include another one.
  while grep -q '^ *-- insert ' "$whole/$name"; do
    awk -v kinds=$kinds '/^ *-- insert / { while ((getline line < (kinds "/" $3)) > 0) print line; next } 1' \
      "$whole/$name" >"$whole/$name.new"
    mv "$whole/$name.new" "$whole/$name"
  done
done
luac5.1 -p $whole/**/*.lua
luacheck --quiet $whole src/fence/redis

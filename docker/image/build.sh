#!/usr/bin/env bash
# Makes the image quorate-local-redis out of this machine's own redis-server and redis-cli, for
# machines that reach no registry. Needs them and docker, and no base image: it starts FROM scratch.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
image=quorate-local-redis

die() {
  echo "build.sh: $*" >&2
  exit 1
}

# Where tests/install-servers.sh links to, or else the one in PATH.
server=$(readlink -f ../../target/servers/redis-server) && [[ -x $server ]] || server=$(command -v redis-server) ||
  die "no redis-server on this machine: run tests/install-servers.sh"
client=$(command -v redis-cli) || die "no redis-cli on this machine: install redis-tools"

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
cp Dockerfile "$context"
mkdir -p "$context/root/usr/bin"
cp -L "$server" "$context/root/usr/bin/redis-server"
cp -L "$client" "$context/root/usr/bin/redis-cli"

# Each library under the very path where the loader looks for it, the loader itself among them:
# "libssl.so.3 => /lib/…/libssl.so.3 (0x…)" or "/lib64/ld-linux-x86-64.so.2 (0x…)".
libraries=$(ldd "$server" "$client" | grep -oE '/[^ :]+ \(0x' | cut -d' ' -f1 | sort -u)
for library in $libraries; do
  mkdir -p "$context/root${library%/*}"
  cp -L "$library" "$context/root$library"
done

docker build --tag "$image" "$context"
# A library that is missing would show only at the start of the fifth container.
docker run --rm --network none "$image" --version

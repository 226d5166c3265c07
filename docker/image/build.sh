#!/usr/bin/env bash
# docker/image/build.sh [IMAGE...] makes images from this machine's own programs, for machines that
# reach no registry. It needs docker and no base image: the images start FROM scratch. IMAGE is one of
#
#   quorate-local-redis     redis-server and redis-cli (this one if none is named)
#   quorate-local-valkey    valkey-server with libfaketime, and redis-cli
#   quorate-local-redis-7.4, quorate-local-redis-8, quorate-local-valkey-8
#                           the server that tests/install-servers.sh puts there under this name, and redis-cli
#   quorate-local-torture   quorate and links, built here for release, and iptables
#
# With QUORATE_PROFILE=dev it uses the quorate that the tests have built, which saves a release build.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."

die() {
  echo "build.sh: $*" >&2
  exit 1
}

contexts=$(mktemp -d)
trap 'rm -rf "$contexts"' EXIT

# The path of the program with this name: in the folder of tests/install-servers.sh, otherwise in PATH (iptables is
# often only in root's PATH).
program() {
  local found
  found=target/servers/$1
  [[ -x $found ]] || found=$(PATH=$PATH:/usr/sbin:/sbin type -P "$1") || die "no $1 on this machine: $2"
  readlink -f "$found"
}

# image NAME ENTRYPOINT [PATH-INSIDE=FILE-HERE ...]: makes an image of these files and the libraries that they load.
# ENTRYPOINT is one or more words.
image() {
  local name=$1 entrypoint=$2 context=$contexts/$1 pair file libraries=()
  shift 2
  # The server's working directory, for a dump. Every user may write there, because the server's user is not known here.
  install -d -m 1777 "$context/root/data" "$context/root/tmp"
  for pair in "$@"; do
    file=${pair#*=}
    install -D "$file" "$context/root${pair%%=*}"
    # Each library is put under the path where the loader looks for it, and so is the loader itself:
    # "libssl.so.3 => /lib/…/libssl.so.3 (0x…)" or "/lib64/ld-linux-x86-64.so.2 (0x…)". A server with libraries of its
    # own needs newer ones than these, so ldd also complains.
    mapfile -t -O ${#libraries[@]} libraries < <(ldd "$file" 2>/dev/null | grep -oE '/[^ :]+ \(0x' | cut -d' ' -f1)
  done
  for file in "${libraries[@]}"; do
    install -D "$file" "$context/root$file"
  done
  printf '%s\n' 'FROM scratch' 'COPY root/ /' 'WORKDIR /data' 'USER 65534:65534' \
    "ENTRYPOINT [\"${entrypoint// /\", \"}\"]" >"$context/Dockerfile"
  docker build --tag "$name" "$context" >"$contexts/log" 2>&1 || {
    cat "$contexts/log" >&2
    die "could not build $name"
  }
  # Otherwise a missing library would show only when the fifth container starts.
  for pair in "$@"; do
    if [[ $pair == /usr/*bin/* ]]; then
      docker run --rm --network none --entrypoint "${pair%%=*}" "$name" --version
    fi
  done
}

redis() {
  image quorate-local-redis /usr/bin/redis-server \
    "/usr/bin/redis-server=$(program redis-server 'run tests/install-servers.sh')" \
    "/usr/bin/redis-cli=$(program redis-cli 'install redis-tools')"
}

# libfaketime steps this server's clock. The server has several threads, so it needs the variant for them.
valkey() {
  local faketime
  faketime=$(find /usr/lib /usr/local/lib -name libfaketimeMT.so.1 2>/dev/null | head -n 1)
  [[ -n $faketime ]] || die "no libfaketime on this machine: apt-get install faketime"
  image quorate-local-valkey /usr/bin/valkey-server \
    "/usr/bin/valkey-server=$(program valkey-server 'run tests/install-servers.sh')" \
    "/usr/bin/redis-cli=$(program redis-cli 'install redis-tools')" \
    "/usr/lib/libfaketime.so.1=$faketime"
}

# A server with libraries of its own: the same call as in the script target/servers/$1, because the image has no shell.
with_libraries() {
  local file files=()
  program "$1" "run tests/install-servers.sh $1" >/dev/null
  for file in "target/servers/$1.files"/*; do
    files+=("/server/${file##*/}=$file")
  done
  image "quorate-local-$1" '/server/loader --library-path /server /server/server' "${files[@]}" \
    "/usr/bin/redis-cli=$(program redis-cli 'install redis-tools')"
  docker run --rm --network none "quorate-local-$1" --version
}

torture() {
  local iptables extensions target profile=${QUORATE_PROFILE:-release} what=(-p quorate-cli --features test-util)
  target=$(cargo metadata --locked --no-deps --format-version 1 | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')
  # Built together with the tests, it is the program that they run. Built alone, its dependencies would have other
  # features.
  [[ $profile != dev ]] || what=(--workspace --all-features --bins --tests)
  cargo build --locked --profile "$profile" "${what[@]}" >&2
  cargo build --locked --profile "$profile" --manifest-path docker/links/Cargo.toml --target-dir "$target" >&2
  target+=/${profile/dev/debug}
  iptables=$(program iptables 'apt-get install iptables')
  # iptables loads its targets from files. DROP is in the standard one.
  extensions=$(find /usr/lib /lib -path '*/xtables/libxt_standard.so' 2>/dev/null | head -n 1)
  [[ -n $extensions ]] || die "no xtables/libxt_standard.so on this machine: apt-get install iptables"
  image quorate-local-torture /usr/bin/links \
    "/usr/bin/links=$target/links" \
    "/usr/bin/quorate=$target/quorate" \
    "/usr/sbin/iptables=$iptables" \
    "$extensions=$extensions"
}

for name in "${@:-quorate-local-redis}"; do
  case $name in
    quorate-local-redis | quorate-local-valkey | quorate-local-torture) "${name##*-}" ;;
    quorate-local-redis-7.4 | quorate-local-redis-8 | quorate-local-valkey-8) with_libraries "${name#quorate-local-}" ;;
    *) die "no image $name; see the head of $0" ;;
  esac
done

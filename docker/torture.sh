#!/usr/bin/env bash
# docker/torture.sh test [--local] [SCENARIO...]   runs these scenarios, or all, and judges them
# docker/torture.sh list                           what they are
# docker/torture.sh up [--local]                   only the containers, to try things by hand
# docker/torture.sh down                           removes them, and whatever a broken run has left
# --local: with images that docker/image/build.sh makes here, where no registry can be reached.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
me=docker/torture.sh
project=quorate-torture
label=com.docker.compose.project=$project
# The name of a container. It can exist only once for all users of this engine, so it keeps two runs apart. The
# container ends with the script that started it, no matter how that ends. The one of `up` is never started, and stays
# until `down`.
lock=$project-lock
fleet=torture
store=redis://store:6379
declare -A container
histories=()

# shellcheck source-path=SCRIPTDIR/..
source docker/torture/faults.sh
source docker/torture/scenarios.sh

say() {
  printf '%s\n' "$*" >&2
}

die() {
  say "torture.sh: $*"
  exit 1
}

usage() {
  sed -n '2,6s/^# //p' $me >&2
  exit 2
}

# ---- containers ----

find_programs() {
  command -v docker >/dev/null || die "no docker on this machine"
  docker version --format '{{.Server.Version}}' >/dev/null 2>&1 ||
    die "no Docker engine answers: is it running, and may you use it? ('docker version' says why)"
  [[ -r /proc/uptime ]] || die "needs Linux, with the containers on this very machine: their clocks are compared"
  if docker compose version >/dev/null 2>&1; then
    program=(docker compose)
  elif command -v docker-compose >/dev/null; then
    program=(docker-compose)
  else
    die "neither 'docker compose' nor 'docker-compose' on this machine"
  fi
}

# Runs in a session of its own, out of reach of the terminal's ^C: see docker/five.sh.
compose() {
  setsid --wait "${program[@]}" --project-name $project --file docker/torture/compose.yaml "$@"
}

is_there() {
  docker image inspect "$1" >/dev/null 2>&1
}

# A broken build or download leaves nothing that runs, so it may be interrupted at any time.
get_images() {
  local image missing=()
  export TORTURE_CLIENT_IMAGE TORTURE_CLOCK_IMAGE QUORATE_IMAGE=${QUORATE_IMAGE:-}
  if [[ -n $local ]]; then
    : "${QUORATE_IMAGE:=quorate-local-redis}"
    TORTURE_CLOCK_IMAGE=quorate-local-valkey
    TORTURE_CLIENT_IMAGE=quorate-local-torture
    for image in $QUORATE_IMAGE $TORTURE_CLOCK_IMAGE; do
      is_there "$image" || missing+=("$image")
    done
    docker/image/build.sh "${missing[@]}" $TORTURE_CLIENT_IMAGE >&2
    return
  fi
  : "${QUORATE_IMAGE:=redis:8}"
  TORTURE_CLOCK_IMAGE=$project-clock
  TORTURE_CLIENT_IMAGE=$project-client
  is_there "$QUORATE_IMAGE" || docker pull "$QUORATE_IMAGE" ||
    die "no image $QUORATE_IMAGE. Where no registry can be reached: make docker-test LOCAL=1"
  for image in client clock; do
    # All files except what was built here.
    tar --create --exclude=./target --exclude=./.git . |
      docker build --tag "$project-$image" --file "docker/torture/$image.Dockerfile" - ||
      die "could not build $project-$image. Where no registry can be reached: make docker-test LOCAL=1"
  done
}

# Everything with our label, including what no compose file names any more, and paused containers.
remove_all() {
  local ids networks
  for _ in 1 2 3 4 5; do
    mapfile -t ids < <(docker ps --all --quiet --filter "label=$label")
    mapfile -t networks < <(docker network ls --quiet --filter "label=$label")
    if ((${#ids[@]} + ${#networks[@]} == 0)); then
      break
    fi
    # A failure here shows in the next round: another process may be removing the same.
    if ((${#ids[@]})); then
      docker rm --force --volumes "${ids[@]}" >/dev/null || true
    fi
    if ((${#networks[@]})); then
      docker network rm "${networks[@]}" >/dev/null || true
    fi
  done
  ((${#ids[@]} + ${#networks[@]} == 0)) || die "something is left: docker ps --all --filter label=$label"
}

down() {
  local status=0
  (remove_all) || status=$?
  # This comes last, so that no other run begins in between.
  docker rm --force $lock >/dev/null 2>&1 || true
  return $status
}

in_use() {
  say "torture.sh: the containers of $project are there already: of another run, or of 'up'."
  die "Wait for its end, or remove them: $me down (make docker-down)"
}

not_locked() {
  local error=$1
  [[ $error == *"already in use"* ]] || die "$error"
  in_use
}

# Takes the lock for `up`, until `down`.
take_lock() {
  local error
  error=$(setsid --wait docker create --name $lock --label "$run" "$TORTURE_CLIENT_IMAGE" 2>&1 >/dev/null) ||
    not_locked "$error"
}

# Takes the lock for `test`, for as long as this script lives. A kill -9 or a restart of the engine ends it too.
hold_lock() {
  # Only this script has its input, because bash does not pass a coproc's descriptors to other programs.
  coproc holder {
    exec setsid --wait docker run --rm --interactive --name $lock --label "$run" --network none \
      "$TORTURE_CLIENT_IMAGE" hold 2>&1
  }
  # Both are saved now, because bash forgets them when the coproc ends.
  # shellcheck disable=SC2154 # by coproc
  local pid=$holder_PID output
  exec {output}<&"${holder[0]}"
  until [[ -n $(docker ps --quiet --filter "name=^$lock\$" --filter "label=$run") ]]; do
    kill -0 "$pid" 2>/dev/null || not_locked "$(cat <&"$output")"
    sleep 0.1
  done
  exec {output}<&-
}

# Containers that exist although nobody held the lock belong to a run that could not clean up.
clear_leftovers() {
  [[ -n $(docker ps --all --quiet --filter "label=$label")$(docker network ls --quiet --filter "label=$label") ]] || return 0
  say "torture.sh: removing what a run that was killed has left"
  remove_all
}

# Call it as `up take_lock` or `up hold_lock`.
up() {
  local service id
  export TORTURE_USER TORTURE_DIR
  TORTURE_USER=$(id -u):$(id -g)
  dir=$PWD/target/torture/$(date +%Y%m%d-%H%M%S)
  TORTURE_DIR=$dir
  run=torture.run=$dir
  # This comes first, so that it does not wait for a build that takes the other run's processors.
  if docker container inspect $lock >/dev/null 2>&1; then
    in_use
  fi
  get_images
  # From here on it is all or nothing: everything that a failed or interrupted run has made is removed again.
  trap 'on_exit $?' EXIT
  "$1"
  clear_leftovers
  # Otherwise docker would make these folders, for root.
  mkdir -p "$dir"/{history,clock,node1,node2,node3,node4,node5}
  set_clock 0
  compose up --detach --no-build >"$dir/compose.log" 2>&1 || {
    cat "$dir/compose.log" >&2
    die "the containers could not be started"
  }
  while read -r service id; do
    container[$service]=$id
  done < <(docker ps --filter "label=$label" --format '{{.Label "com.docker.compose.service"}} {{.ID}}')
  ((${#container[@]} == 9)) || die "only these containers run: ${!container[*]}"
}

on_exit() {
  # A second ^C does not stop the clean-up.
  trap '' INT TERM HUP
  trap - EXIT
  # A run that did not get the lock has made nothing, and removes nothing of others.
  [[ -n $(docker ps --all --quiet --filter "label=$run") ]] || exit "$1"
  if (($1)); then
    # The part of a broken run that exists may show the reason.
    if ((${#histories[@]})) && [[ -z ${judged:-} ]]; then
      timeout 60 docker exec "${container[dc1]}" quorate torture judge "${histories[@]}" >&2 || true
    fi
    say "torture.sh: status $1; removing all containers"
  fi
  # shellcheck disable=SC2046 # several words
  kill $(jobs -p) 2>/dev/null || true
  down >&2
  if [[ -z ${keep:-} && $1 -eq 0 ]]; then
    rm -rf "$dir"
  elif [[ -d $dir ]]; then
    say "the histories and logs are in ${dir#"$PWD/"}"
  fi
  exit "$1"
}

# ---- a scenario ----

in_dc() {
  local dc=$1
  shift
  docker exec "${container[dc$dc]}" quorate --key-prefix "torture-$scenario" \
    --fleet $fleet --max-ttl "${lease}ms" --restart-margin 1s --node-timeout 300ms "$@"
}

bootstrap() {
  # The prefix is new in every scenario, so no client has to be waited for.
  in_dc 1 bootstrap --force >"$history/bootstrap.log" 2>&1
}

# votes N: succeeds if this many masters vote, as a client in dc2 sees it.
votes() {
  local seen
  seen=$(in_dc 2 nodes --json 2>/dev/null) || true
  seen=${seen#*\"voting\":}
  ((${seen%%[!0-9]*} >= $1))
}

run_load_in() {
  in_dc "$1" torture run --history "/history/$scenario" --store $store --names $names \
    --label "dc$1" --stop-file "/history/$scenario/stop" --processes 2 --tasks "$tasks" \
    --ttl "${lease}ms" --section "$section" "${locks[@]}" "${load[@]}" >>"$history/dc$1.log" 2>&1 &
  loads+=("$1 $!")
  processes=$((processes + 2))
}

# Succeeds when all processes have connected and asked for locks. No fault may hit a process that still connects.
load_is_under_way() {
  local asking
  asking=$(grep --files-with-matches --no-messages '"invoked"' "$history"/dc?.*.jsonl | wc -l)
  ((asking >= processes))
}

run_load() {
  local dc
  rm -f "$history/stop"
  for dc in 1 2 3; do
    run_load_in $dc
  done
  await_load
}

await_load() {
  until_true load_is_under_way || die "the load does not start: $(tail -n 3 "$history"/dc?.log)"
}

# Returns when all clients have ended. The status of a killed client is not checked.
stop_load() {
  local one dc pid status
  plan '"stopping"'
  touch "$history/stop"
  for one in "${loads[@]}"; do
    read -r dc pid <<<"$one"
    status=0
    wait "$pid" || status=$?
    # 137 means killed, in a scenario that says so.
    if ((status == 137)) && [[ $killed == *" dc$dc "* ]]; then
      killed=${killed/" dc$dc "/}
    elif ((status != 0)); then
      cat "$history/dc$dc.log" >&2
      die "the clients of dc$dc ended with status $status"
    fi
  done
  loads=()
}

# Tells the judge what to expect. If it is told twice, the later one counts.
expect() {
  plan "\"scenario\",\"name\":\"$scenario\",\"does\":\"${does[$scenario]}\",\"gap_ms\":$gap,\"at_least\":$at_least,\"must_see\":[$must_see],\"may_break\":[$may_break],\"must_find\":[$must_find],\"disturbs\":$disturbs"
}

begin() {
  expect
  until_true bootstrap || die "not all masters answer: $(cat "$history/bootstrap.log")"
  run_load
  rest 2
}

# Waits after the last fault until all masters vote again and every name is held again. One section in 200 takes 3 s,
# and a client's back-off may be behind that of the client that asks here.
recover() {
  until_true votes 5
  plan '"voting"'
  rest 4
}

look() {
  in_dc 3 torture look --history "/history/$scenario" --store $store --names $names "${locks[@]}" >>"$history/look.log" 2>&1 ||
    die "the look at the end failed: $(cat "$history/look.log")"
}

# Succeeds when this many sections have ended.
sections_ended() {
  (($(cat "$history"/dc?.*.jsonl | grep -c '"ended"') >= $1))
}

# On a slow machine it takes longer until enough sections have ended. If they never do, the judge says so.
finish() {
  until_true sections_ended "$at_least" || true
  stop_load
  look
}

needs_one_way() {
  can_cut_one_way && return
  not_run="iptables is not allowed in containers here"
  return 1
}

play() {
  local started=$SECONDS
  scenario=$1 history=$dir/history/$1
  gap=null lease=2000 section=20ms tasks=8 at_least=100 must_see='' may_break='' must_find='' disturbs=null locks=() load=() loads=() strays=() not_run='' killed='' names=8 processes=0
  mkdir -p "$history"
  printf '%-32s' "$scenario" >&2
  "$scenario"
  mend_all
  if [[ -n $not_run ]]; then
    say "not run: $not_run"
    missing+=("$scenario")
  else
    say "$((SECONDS - started)) s"
    histories+=("/history/$scenario")
  fi
}

check_names() {
  local name
  [[ -z $(printf '%s\n' "$@" | sort | uniq --repeated) ]] || die "a scenario is named twice: its two histories would be one"
  for name in "$@"; do
    [[ -n ${does[$name]:-} ]] || die "no scenario $name; $me list names them"
  done
}

run_all() {
  local scenario history name status=0 missing=() started=$SECONDS
  for name in "$@"; do
    play "$name"
  done
  say ""
  ((${#histories[@]})) || die "no scenario was run"
  judged=yes
  docker exec "${container[dc1]}" quorate torture judge "${histories[@]}" || status=$?
  say ""
  if ((${#missing[@]})); then
    say "not run: ${missing[*]}"
  fi
  say "$((${#histories[@]})) scenarios in $((SECONDS - started)) s"
  return $status
}

# This is not left to bash, which goes on after a ^C that the program it waits for has handled.
trap 'exit 130' INT
trap 'exit 143' TERM HUP

command=${1:-}
shift || true
local=''
if [[ ${1:-} == --local ]]; then
  local=yes
  shift
fi
case $command in
  test)
    if (($# == 0)); then
      set -- "${scenarios[@]}"
    fi
    check_names "$@"
    find_programs
    up hold_lock
    run_all "$@"
    ;;
  list)
    for name in "${scenarios[@]}"; do
      printf '%-32s%s\n' "$name" "${does[$name]}"
    done
    ;;
  up)
    (($# == 0)) || usage
    find_programs
    up take_lock
    trap - EXIT
    say "up: 'docker exec -it ${container[dc1]} quorate nodes', for one; $me down removes all"
    ;;
  down)
    find_programs
    # The folder that the containers wrote to. When they are gone, nobody else knows it.
    left=$(docker container inspect --format '{{index .Config.Labels "torture.run"}}' $lock 2>/dev/null) || true
    down
    if [[ $left == "$PWD"/target/torture/* ]]; then
      rm -rf "$left"
    fi
    ;;
  *) usage ;;
esac

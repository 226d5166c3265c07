# shellcheck shell=bash
# The faults, one function each. docker/torture.sh sources this file, and sets project, dir, history and the array
# container (service name -> id). The functions use the docker program and not compose, which takes a second to start. A
# fault of several containers happens to all of them at once.
#
# Each function writes to the history: a fault when it has happened, and `healed` when mending begins.

# Prints nanoseconds of CLOCK_BOOTTIME. /proc/uptime counts that clock in steps of 10 ms, such as "828.91".
at() {
  local seconds
  read -r seconds _ </proc/uptime
  echo "${seconds/./}0000000"
}

# The first line names the clock, because the judge refuses to compare different clocks.
plan() {
  if [[ ! -e $history/plan.jsonl ]]; then
    printf '{"at":%s,"event":"process","label":"plan","clock":"%s","ttl_ms":%s}\n' \
      "$(at)" "$(cat /proc/sys/kernel/random/boot_id)" "$lease" >"$history/plan.jsonl"
  fi
  printf '{"at":%s,"event":%s}\n' "$(at)" "$1" >>"$history/plan.jsonl"
}

# Set stops=LABEL before the call: clients whose label begins with it can be granted nothing from one second after it
# until something is healed. "*" means all clients.
fault() {
  plan "\"fault\",\"what\":\"$1\"${stops:+,\"stops\":\"$stops\"}"
}

healed() {
  plan "\"healed\",\"what\":\"$1\""
}

# No call of docker may hang. A paused container, for example, answers no exec.
d() {
  timeout --kill-after=5 30 docker "$@"
}

# all COMMAND ITEM...: for all items at once; fails if one of them did.
all() {
  local command=$1 item pid pids=() failed=0
  shift
  for item in "$@"; do
    "$command" "$item" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do
    wait "$pid" || failed=1
  done
  return $failed
}

# until_true COMMAND...: tries again and again, for a minute at most.
until_true() {
  local deadline=$((SECONDS + 60))
  until "$@"; do
    if ((SECONDS > deadline)); then
      say "not within a minute: $*"
      return 1
    fi
    rest 0.1
  done
}

# This can be interrupted, unlike a sleep in the foreground.
rest() {
  sleep "$1" &
  wait $!
}

nodes() {
  printf 'node%s ' "$@" | sed 's/ $//'
}

# Puts the ids of these masters into `ids`.
pick() {
  local n
  ids=()
  for n in "$@"; do
    ids+=("${container[node$n]}")
  done
}

# libfaketime, which node5 has in its environment, is switched off here, because redis-cli does not start with it.
redis_cli() {
  local node=$1
  shift
  d exec --env LD_PRELOAD= "${container[$node]}" redis-cli -e "$@"
}

# ---- masters ----

# Kills them as `kill -9` does, and returns when they are dead.
kill_nodes() {
  local ids
  pick "$@"
  d kill --signal KILL "${ids[@]}" >/dev/null
  d wait "${ids[@]}" >/dev/null
  fault "$(nodes "$@") killed"
}

start() {
  d start "$1" >/dev/null
}

# Starts them without memory, or with the memory of `snapshot` if that was called before.
start_nodes() {
  local ids
  pick "$@"
  healed "$(nodes "$@") started"
  all start "${ids[@]}"
}

# At times runc cannot freeze processes that are busy, and says that its caller should try again (opencontainers/runc
# 2791 and 4388).
freeze() {
  until_true is_frozen "$1"
}

is_frozen() {
  d pause "$1" >/dev/null || [[ $(d inspect --format '{{.State.Paused}}' "$1") == true ]]
}

# They are stopped, and their sockets still accept what is sent.
pause_nodes() {
  local ids
  pick "$@"
  all freeze "${ids[@]}"
  fault "$(nodes "$@") paused"
}

resume_nodes() {
  local ids
  pick "$@"
  healed "$(nodes "$@") resumed"
  d unpause "${ids[@]}" >/dev/null
}

# The master loses its memory, and goes on.
flush_node() {
  redis_cli "node$1" FLUSHALL >/dev/null
}

flush_nodes() {
  all flush_node "$@"
  fault "$(nodes "$@") flushed"
}

save_node() {
  redis_cli "node$1" SET torture:saved "$scenario" >/dev/null
  redis_cli "node$1" SAVE >/dev/null
  redis_cli "node$1" DEL torture:saved >/dev/null
}

remembers() {
  [[ $(redis_cli "node$1" GET torture:saved) == "$scenario" ]]
}

# Checks that they really came back with what they had saved, and not empty.
remember_snapshot() {
  local n
  for n in "$@"; do
    until_true remembers "$n" || die "node$n did not start with its dump"
  done
}

# From now on these masters start with what they remember now.
snapshot() {
  all save_node "$@"
  plan "\"fault\",\"what\":\"$(nodes "$@") saved\""
}

forget_snapshots() {
  rm -f "$dir"/node?/dump.rdb
}

is_in_sync() {
  redis_cli "$1" INFO replication | grep -q '^master_link_status:up'
}

# make_replica 2 of 1: node2 joins node1's network, and is in sync with it.
make_replica() {
  d network connect --alias "node$1" "${project}_net$3" "${container[node$1]}"
  redis_cli "node$3" CONFIG SET repl-diskless-sync-delay 0 >/dev/null
  redis_cli "node$1" REPLICAOF "node$3" 6379 >/dev/null
  fault "node$1 is a replica of node$3"
  until_true is_in_sync "node$1"
}

# make_master 2 of 1: undoes that.
make_master() {
  healed "node$1 is a master again"
  redis_cli "node$1" REPLICAOF NO ONE >/dev/null
  d network disconnect "${project}_net$3" "${container[node$1]}"
}

# Sets node5's clock, relative to the true one.
set_clock() {
  # The file is renamed into its place, because the server reads it whenever it reads its clock.
  printf '%+d\n' "$1" >"$dir/clock/next"
  mv "$dir/clock/next" "$dir/clock/offset"
}

# Succeeds if node5's clock is off by this many seconds, give or take one.
is_off() {
  local theirs ours
  theirs=$(redis_cli node5 TIME | head -n 1)
  ours=$(date +%s)
  ((theirs - ours >= $1 - 1 && theirs - ours <= $1 + 1))
}

step_clock() {
  set_clock "$1"
  until_true is_off "$1" || die "libfaketime did not step the clock of node5"
  fault "the clock of node5 stepped to $1 s off"
}

# ---- the network ----

# Nothing reaches the master, nothing comes back, and nobody is told.
disconnect_node() {
  d network disconnect "${project}_net$1" "${container[node$1]}"
  fault "node$1 disconnected"
}

reconnect_node() {
  healed "node$1 connected again"
  d network connect --alias "node$1" "${project}_net$1" "${container[node$1]}"
}

# cut_dc 1 3 4 5: cuts dc1 off from masters 3, 4 and 5.
cut_dc() {
  local dc=dc$1 n
  shift
  for n in "$@"; do
    d network disconnect "${project}_net$n" "${container[$dc]}"
  done
  fault "$dc cut off from $(nodes "$@")"
}

mend_dc() {
  local dc=dc$1 n
  shift
  healed "$dc connected to $(nodes "$@") again"
  for n in "$@"; do
    d network connect --alias "$dc" "${project}_net$n" "${container[$dc]}"
  done
}

iptables() {
  local dc=$1
  shift
  d exec --user 0 "${container[$dc]}" iptables "$@"
}

can_cut_one_way() {
  iptables dc1 --list-rules >/dev/null 2>&1
}

address() {
  d inspect --format "{{(index .NetworkSettings.Networks \"${project}_net$1\").IPAddress}}" "${container[node$1]}"
}

drop() {
  iptables "$1" --insert "$chain" "$direction" "$addresses" --jump DROP
}

# one_way CHAIN DIRECTION WORDS MASTER...: sets the rule in every datacenter.
one_way() {
  local chain=$1 direction=$2 what=$3 addresses='' n
  shift 3
  for n in "$@"; do
    addresses+=${addresses:+,}$(address "$n")
  done
  all drop dc1 dc2 dc3
  fault "$what $(nodes "$@") dropped"
}

# Messages to these masters are lost. Their answers would arrive.
cut_requests() {
  one_way OUTPUT --destination "requests to" "$@"
}

# These masters execute requests, and their answers are lost.
cut_answers() {
  one_way INPUT --source "answers of" "$@"
}

accept_all() {
  iptables "$1" --flush
}

mend_one_way() {
  healed "nothing is dropped any more"
  all accept_all dc1 dc2 dc3
}

# ---- clients ----

# All processes of a datacenter stand still, and its half of the network too.
freeze_clients() {
  freeze "${container[dc$1]}"
  fault "dc$1 frozen"
}

thaw_clients() {
  healed "dc$1 goes on"
  d unpause "${container[dc$1]}" >/dev/null
}

# Kills them in the middle of their sections.
kill_clients() {
  d kill --signal KILL "${container[dc$1]}" >/dev/null
  d wait "${container[dc$1]}" >/dev/null
  killed+=" dc$1 "
  fault "dc$1 killed"
}

# Starts the datacenter. `run_load` of docker/torture.sh starts its load.
start_dc() {
  healed "dc$1 started"
  start "${container[dc$1]}"
}

# Undoes everything that a broken scenario has left in containers that stay in use.
mend_all() {
  local paused
  mapfile -t paused < <(docker ps --quiet --filter "label=$label" --filter status=paused)
  if ((${#paused[@]})); then
    d unpause "${paused[@]}" >/dev/null
  fi
  set_clock 0
  forget_snapshots
}

# ---- clients whose configuration is wrong ----

# Each of them runs in a loop of its own in dc3: it starts, meets the masters that it lists, and ends.
stray_clients() {
  local word url=redis://127.0.0.1 lone here=()
  # One client lists the right masters. For each master there is also one that reaches no other master.
  for word in 7001 7002 7003 7004 7005; do
    here+=(--node "$url:$word")
  done
  fault "clients with wrong settings start again and again"
  stray --fleet $fleet --max-ttl 24h "${here[@]}" &
  strays+=($!)
  stray --fleet $fleet --max-ttl 200ms --restart-margin 0ms "${here[@]}" &
  strays+=($!)
  stray --fleet strangers --max-ttl "${lease}ms" "${here[@]}" &
  strays+=($!)
  stray --fleet $fleet --max-ttl "${lease}ms" "${here[@]:0:6}" &
  strays+=($!)
  for lone in 7001 7003 7005; do
    stray --fleet $fleet --max-ttl 24h --node "$url:$lone" --node $url:1 --node $url:2 --node $url:3 --node $url:4 &
    strays+=($!)
  done
}

# Runs until it is told to end, and 300 times at most.
stray() {
  local i
  for ((i = 0; i < 300; i++)); do
    [[ ! -e $history/no-strays ]] || return 0
    d exec "${container[dc3]}" quorate --key-prefix "torture-$scenario" --node-timeout 300ms "$@" \
      nodes >>"$history/strays.log" 2>&1 || true
  done
}

stop_stray_clients() {
  local pid what
  touch "$history/no-strays"
  for pid in "${strays[@]}"; do
    wait "$pid" || true
  done
  strays=()
  # They ran, and were refused because of another list or N, and because of a greater max_ttl.
  for what in "another fleet" "max_ttl is 86400.0 s here"; do
    grep -q "$what" "$history/strays.log" || die "no stray client was told: $what"
  done
  healed "no client has wrong settings any more"
}

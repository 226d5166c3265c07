# shellcheck shell=bash
# The scenarios, in the order in which they run: what is done, and what must hold. docker/torture.sh sources this file.
#
# These must hold in each scenario (unless may_break lists what is not promised there): exclusion, growing tokens, no
# lost update behind the fence, nothing left on the nodes, and every client going on after the last fault. A scenario
# also sets
#
#   gap         ms: the longest time without a grant of any one name that the design promises, with its
#               sum in a comment; null where nothing is promised
#   at_least    the least number of sections; with fewer the run shows nothing
#   must_see    what the fault must have shown: "refusal", the store refused a stale write; "loss"; "held",
#               a lease at the last fault was good for half a second more; "order", between two waiters
#   disturbs    the clients that the faults concern, as ["dc1"]: the order of all others is judged throughout, and not
#               only until the first fault; [] if they concern nobody
#   must_find   with a rule switched off: the scenario passes only if the judge finds this
#   lease       ms: ttl and max_ttl, if not 2000
#   section     the average time of a section, if not 20ms
#   tasks       the number of tasks in each of the six processes, if not 8
#   names       the number of locks, if not 8
#   locks       --semaphore L, --rwlock or --several, if the names are not mutexes
#   load        further words for `quorate torture run`
declare -A does
scenarios=(
  calm
  kill-one kill-two kill-three
  pause-one pause-two pause-three
  cut-one cut-datacenter one-way-requests one-way-answers
  rolling-restart restart-all old-snapshot
  flush-one flush-majority replica-and-back
  frozen-holder client-killed misconfigured clock-step
  head-killed head-stopped head-cut-off
  semaphore-kill-two semaphore-restart-all semaphore-frozen-holder
  rwlock-kill-two rwlock-restart-all rwlock-frozen-holder
  several-kill-two several-restart-all several-frozen-holder
  restart-all-without-quarantine pause-three-without-rollback
)

# The parts of the sums, in ms.
timeout=300       # node_timeout: how long a client waits for a node that does not answer
poll=100          # the longest rest between two attempts
hello=1000        # the time after which a node in quarantine is met again
in_quarantine=500 # the rest between two attempts while too few nodes may vote
# lease: a holder that vanished blocks its name for this long.
# machine: two cores run nine servers, six processes of load and docker itself. Six tasks contend for each name, so an
# attempt may be refused although the name is free.
machine=1000

# How long a node that lost its memory does not vote: 1.01 · max_ttl + restart_margin.
quarantine() {
  echo $((lease * 101 / 100 + 1000))
}

# back_off OUTAGE: a node that was away is dialled after 50 ms, 100 ms, .. 5 s. This is never later than it has already
# been away, and half as long again for jitter and rounding.
back_off() {
  local ms=$(($1 * 3 / 2))
  echo $((ms < 5000 ? ms : 5000))
}

# ---- no fault ----

does[calm]="nothing happens"
calm() {
  # A free name is handed over. A client that asks for a name without waiters gets it after one rest.
  gap=$((poll + machine)) at_least=500
  begin
  rest 5
  finish
}

# ---- masters die ----

# A majority is left. A client that asked the dead masters waits for at most one node timeout, once. It may have to give
# up its grants, and try again. Entries that it left behind on a broken connection expire after a ttl.
minority() {
  echo $((timeout + lease + poll + machine))
}

# The same where every client still reaches every living master: grants that it takes back are freed at once, and a
# lease that a master lost is put back there. An attempt and its raise may each wait for the dead masters.
minority_reached() {
  echo $((2 * timeout + poll + machine))
}

# Without a majority, for OUTAGE ms: until the masters are back, are found, and may vote.
majority_lost() {
  echo $(($1 + $(back_off "$1") + $(quarantine) + hello + in_quarantine + poll + machine))
}

does[kill-one]="kill -9 one master, start it again, empty"
kill-one() {
  gap=$(minority_reached)
  begin
  kill_nodes 1
  rest 2
  start_nodes 1
  recover
  finish
}

does[kill-two]="kill -9 two masters, start them again, empty"
kill-two() {
  gap=$(minority_reached)
  begin
  kill_nodes 2 4
  rest 2
  start_nodes 2 4
  recover
  finish
}

does[kill-three]="kill -9 three masters, start them again, empty"
kill-three() {
  # 2 s, and the time that docker itself needs.
  gap=$(majority_lost 3500)
  begin
  stops="*" kill_nodes 1 3 5
  rest 2
  start_nodes 1 3 5
  recover
  finish
}

# ---- masters stop and go on ----

does[pause-one]="stop one master for 3 s"
pause-one() {
  gap=$(minority_reached)
  begin
  pause_nodes 3
  rest 3
  resume_nodes 3
  recover
  finish
}

does[pause-two]="stop two masters for 3 s"
pause-two() {
  gap=$(minority_reached)
  begin
  pause_nodes 1 5
  rest 3
  resume_nodes 1 5
  recover
  finish
}

does[pause-three]="stop three masters, end the clients meanwhile, go on and look half a second later; then new clients"
pause-three() {
  # Requests to the stopped masters that were rolled back still wait in the masters' sockets. The clients end before the
  # masters go on. New clients find a healthy fleet.
  begin
  local began
  began=$(at)
  stops="*" pause_nodes 2 3 5
  rest 1
  # The machine may take longer than the rest to get here.
  gap=$((($(at) - began) / 1000000 + timeout + poll + machine))
  expect
  stop_load
  resume_nodes 2 3 5
  # The servers execute what waits in their sockets. A lock that is left behind stays for a ttl, four times as long.
  rest 0.5
  look
  run_load
  rest 4
  finish
}

# ---- the network ----

does[cut-one]="cut one master off the network for 3 s"
cut-one() {
  gap=$(minority_reached)
  begin
  disconnect_node 2
  rest 3
  reconnect_node 2
  recover
  finish
}

does[cut-datacenter]="cut one datacenter off three masters for 6 s; the others go on"
cut-datacenter() {
  # The holders in dc1 lose their leases when their validity ends. The others go on for longer than this. By then the
  # waiting processes of dc1 have been silent, so three masters only call them. Or they are handed a lock that others
  # released, for a first term, which is shorter. They must not keep the two masters that they reach.
  gap=$((lease + timeout + poll + machine))
  begin
  stops=dc1 cut_dc 1 3 4 5
  rest 6
  mend_dc 1 3 4 5
  recover
  finish
}

does[one-way-requests]="what is sent to two masters gets lost, for 3 s; their answers would arrive"
one-way-requests() {
  needs_one_way || return 0
  gap=$(minority)
  begin
  cut_requests 2 3
  rest 3
  mend_one_way
  recover
  finish
}

does[one-way-answers]="two masters do what they are told and nobody hears of it, for 3 s"
one-way-answers() {
  needs_one_way || return 0
  gap=$(minority)
  begin
  cut_answers 1 4
  rest 3
  mend_one_way
  recover
  finish
}

# ---- memories ----

does[rolling-restart]="kill -9 and start all five, one after the other, two out at most"
rolling-restart() {
  local n
  # Again and again only three masters vote, so a lease that was handed over by a master that dies is lost. Its careless
  # holder does not release it, and a renewal that reached the two others blocks the name there for a ttl.
  gap=$(minority)
  begin
  for n in 1 2 3 4 5; do
    kill_nodes $n
    start_nodes $n
    # The next master is killed when at most this one is out.
    until_true votes 4
  done
  recover
  finish
}

# Many clients hold a lease when it happens, and for longer than docker takes to start five servers. That takes 2 to
# 4 s, because waiting clients use the processors.
held_long() {
  lease=8000 section=4s tasks=4 at_least=15 must_see='"held"'
}

restart_all() {
  kill_nodes 1 2 3 4 5
  start_nodes 1 2 3 4 5
}

does[restart-all]="kill -9 all five at once while locks are held, start them empty"
restart-all() {
  held_long
  restart_all_held
}

restart_all_held() {
  gap=$(majority_lost 4000)
  begin
  restart_all
  recover
  finish
}

does[old-snapshot]="three masters go back to what they knew 2 s ago"
old-snapshot() {
  held_long
  gap=$(majority_lost 3000)
  begin
  snapshot 1 2 4
  rest 2
  kill_nodes 1 2 4
  start_nodes 1 2 4
  remember_snapshot 1 2 4
  recover
  finish
}

does[flush-one]="FLUSHALL on one master"
flush-one() {
  gap=$(minority)
  begin
  flush_nodes 5
  recover
  finish
}

does[flush-majority]="FLUSHALL on three masters"
flush-majority() {
  held_long
  gap=$(majority_lost 0)
  begin
  flush_nodes 1 2 5
  recover
  finish
}

does[replica-and-back]="one master becomes a replica of another, in sync, and a master again"
replica-and-back() {
  gap=$(minority)
  begin
  make_replica 2 of 1
  rest 1
  make_master 2 of 1
  recover
  finish
}

# ---- clients ----

does[frozen-holder]="freeze a datacenter with its holders for 3 s, beyond their leases, three times"
frozen-holder() {
  # Others take over when a frozen holder's lease ends. But a client that freezes between its request and the answer
  # blocks the name for a ttl, without knowing it.
  gap=$((lease + timeout + poll + machine))
  freeze_thrice
}

freeze_thrice() {
  must_see='"refusal"' section=200ms
  begin
  for _ in 1 2 3; do
    freeze_clients 1
    rest 3
    thaw_clients 1
    rest 1
  done
  recover
  finish
}

does[client-killed]="kill -9 a datacenter's clients in their sections, start new ones"
client-killed() {
  # Counted from their death: their leases expire.
  gap=$((lease + poll + machine)) section=100ms
  begin
  kill_clients 1
  rest 3
  start_dc 1
  run_load_in 1
  await_load
  recover
  finish
}

does[misconfigured]="clients with another max_ttl, margin, list or N start again and again, beside masters that are killed"
misconfigured() {
  local n
  # As in a rolling restart: the strangers' records bind nobody.
  gap=$(minority)
  begin
  stray_clients
  for n in 1 3 5; do
    kill_nodes $n
    start_nodes $n
    # The next master is killed when all vote again while the strangers go on.
    until_true votes 5 || die "strangers keep node$n from voting: $(in_dc 2 nodes 2>&1)"
  done
  stop_stray_clients
  recover
  finish
}

does[clock-step]="one master's clock is an hour ahead for 3 s, then right again"
clock-step() {
  # A stepped clock is outside of the assumptions for exclusion. Entries that are left behind an hour ahead live for an
  # hour. This is one node, so it keeps nobody out. But a lock may be found there at the end.
  gap=$(minority) may_break='"exclusion","fence"'
  begin
  step_clock 3600
  rest 3
  healed "the clock of node5 is right again"
  set_clock 0
  recover
  finish
}

# ---- heads of queues ----

# Clients wait in a queue for most of the time, so every datacenter has heads of queues. A head waits for one of 8
# names, and two thirds of the names are held by others. The order of the others is kept meanwhile, and no queue stands
# still.
in_line() {
  section=100ms must_see='"order"' disturbs='["dc1"]' at_least=100
}

# A hand-over that nobody takes ends after its first term.
term=1000

does[head-killed]="kill -9 a datacenter's clients while they wait in line, three times"
head-killed() {
  in_line
  # As in client-killed, their leases expire. Nothing is left of the waiters that a lock could be handed to.
  gap=$((lease + poll + machine))
  begin
  for _ in 1 2 3; do
    kill_clients 1
    rest 2
    start_dc 1
    run_load_in 1
    # A kill must hit clients that wait in line.
    await_load
    rest 2
  done
  recover
  finish
}

does[head-stopped]="stop a datacenter's clients while they wait in line, for 3 s, three times"
head-stopped() {
  in_line
  # A stopped holder's lease expires. Then the lock may be handed to a stopped head. Each of six tasks is at most one
  # such head. One of them gets a hand-over, and the others have been silent for longer and are only called.
  gap=$((lease + term + timeout + poll + machine))
  begin
  for _ in 1 2 3; do
    freeze_clients 1
    rest 3
    thaw_clients 1
    rest 1
  done
  recover
  finish
}

does[head-cut-off]="cut a datacenter off all masters while its clients wait in line, for 3 s, twice"
head-cut-off() {
  in_line
  # As if they had been stopped, but the masters do not see it, because nobody closes their connections.
  gap=$((lease + term + timeout + poll + machine))
  begin
  for _ in 1 2; do
    stops=dc1 cut_dc 1 1 2 3 4 5
    rest 3
    mend_dc 1 1 2 3 4 5
    rest 2
  done
  recover
  finish
}

# ---- semaphores ----

# The same with a semaphore of three slots for each lock, so half of the tasks that ask for a name have a slot. "No
# grant for" counts the time while a slot was free.
with_slots() {
  locks=(--semaphore 3)
}

does[semaphore-kill-two]="kill-two with semaphores of three slots"
semaphore-kill-two() {
  with_slots
  kill-two
}

does[semaphore-restart-all]="restart-all with semaphores of three slots"
semaphore-restart-all() {
  with_slots
  restart-all
}

does[semaphore-frozen-holder]="frozen-holder with semaphores of three slots"
semaphore-frozen-holder() {
  with_slots
  # As in frozen-holder. One of the first waiters is told of a free slot, and the gate has room for two. Each of them
  # may be frozen, and that costs a term.
  gap=$((lease + 2 * term + timeout + poll + machine))
  freeze_thrice
}

# ---- read-write locks ----

# The same with a read-write lock for each lock. "No grant for" counts the time while nobody held it. A client that dies
# or stops while it waits to write keeps readers out for 3 * (poll + timeout), which is less than a lease.
with_rwlocks() {
  locks=(--rwlock)
}

does[rwlock-kill-two]="kill-two with read-write locks, of which four of five sections read"
rwlock-kill-two() {
  with_rwlocks
  kill-two
}

# As in restart-all, with leases that outlive the restart by less. So the quarantine and the last sections end sooner.
held_shorter() {
  lease=6000 section=3s tasks=4 at_least=10 must_see='"held"'
}

does[rwlock-restart-all]="restart-all with read-write locks, and leases of 6 s"
rwlock-restart-all() {
  with_rwlocks
  held_shorter
  restart_all_held
}

does[rwlock-frozen-holder]="frozen-holder with read-write locks, of which half of the sections read"
rwlock-frozen-holder() {
  with_rwlocks
  # With these readers enough of the frozen clients write. Readers delay writers as writers do: for a ttl.
  load=(--readers 50)
  gap=$((lease + timeout + poll + machine))
  freeze_thrice
}

# ---- several names at once ----

# Sections of one, two or three of the eight names. "No grant for" counts the time while all names of a section were
# free, until one of them was taken.
with_several() {
  locks=(--several)
}

does[several-kill-two]="kill-two with sections that take up to three names at once"
several-kill-two() {
  with_several
  kill-two
}

does[several-restart-all]="restart-all with up to three names at once, and leases of 6 s"
several-restart-all() {
  with_several
  held_shorter
  restart_all_held
}

does[several-frozen-holder]="frozen-holder with up to three names at once"
several-frozen-holder() {
  with_several
  # A section takes two names on average. With 16 names, as many sections run at a time as in frozen-holder, so some of
  # them are in the frozen datacenter.
  names=16
  gap=$((lease + timeout + poll + machine))
  freeze_thrice
}

# ---- does the judge see violations? ----

does[restart-all-without-quarantine]="the same with the quarantine switched off: two hold one lock"
restart-all-without-quarantine() {
  held_long
  gap=null must_find='"exclusion"' load=(--without-rule quarantine)
  begin
  for _ in 1 2 3; do
    restart_all
    rest 4
  done
  finish
}

does[pause-three-without-rollback]="the same, taking back only what was granted: locks are left"
pause-three-without-rollback() {
  # The look must come before the locks that are left behind expire.
  gap=null must_find='"leftover"' load=(--without-rule release-everywhere) lease=8000
  begin
  stops="*" pause_nodes 2 3 5
  rest 1
  stop_load
  resume_nodes 2 3 5
  # The servers execute what waits in their sockets. A lock that is left behind stays for a ttl of 8 s.
  rest 0.5
  look
  run_load
  rest 2
  finish
}

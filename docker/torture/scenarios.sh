# shellcheck shell=bash
# The scenarios, in the order in which they run: what is done, and what must hold. Sourced by
# docker/torture.sh.
#
# Exclusion, growing tokens, no lost update behind the fence, nothing left on the nodes, and
# everybody going on after the last fault must hold in each (unless may_break says that it is not
# promised there). Besides, a scenario sets
#
#   gap         ms: the longest time without a grant of any one name that the design promises, its
#               sum in a comment; null where nothing is promised
#   at_least    so many sections, or the run says nothing
#   must_see    what the fault must have shown: "refusal", of a stale write by the store; "loss"; "held",
#               a lease at the last fault that was good for half a second more; "order", of two who waited
#   disturbs    whom the faults concern, as ["dc1"]: the order of all others is judged throughout, and not only until
#               the first fault; [] if nobody
#   must_find   with a rule switched off: it passes only if the judge finds this
#   lease       ms: ttl and max_ttl, if not 2000
#   section     how long a section takes on average, if not 20ms
#   tasks       in each of the six processes, if not 8
#   names       of locks, if not 8
#   locks       --semaphore L, --rwlock or --several, if the names are not just locks
#   load        words for `quorate torture run` on top of the usual ones
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

# What the sums are made of, in ms.
timeout=300       # node_timeout: how long a node that does not answer is waited for
poll=100          # the longest rest between two tries
hello=1000        # a node in quarantine is met again
in_quarantine=500 # the rest between two tries while too few nodes may vote
# lease: a holder that vanished blocks its name for so long
# Two cores for nine servers, six processes of load and docker itself; and names are fought for by
# six tasks, so that a try may be refused although the name is free.
machine=1000

# How long a node that lost its memory is kept out: 1.01 · max_ttl + restart_margin.
quarantine() {
  echo $((lease * 101 / 100 + 1000))
}

# back_off OUTAGE: a node that was away is dialled after 50 ms, 100 ms, .. 5 s: never later than it has
# been away already, half as long again for jitter and rounding.
back_off() {
  local ms=$(($1 * 3 / 2))
  echo $((ms < 5000 ? ms : 5000))
}

# ---- nothing ----

does[calm]="nothing happens"
calm() {
  # A name that is free is handed over; who asks for one that nobody waits for has it after one rest.
  gap=$((poll + machine)) at_least=500
  begin
  rest 5
  finish
}

# ---- masters die ----

# With a majority left: who asked the dead ones waits a node timeout at most, once, and may have to
# give up what it got, and try again. What it left behind where its connection broke is over after a ttl.
minority() {
  echo $((timeout + lease + poll + machine))
}

# The same where every client still reaches every living master: what it takes back is freed at once, and a lease that
# a master lost is put back there. An attempt and its raise may each wait for the dead ones.
minority_reached() {
  echo $((2 * timeout + poll + machine))
}

# Without one, for OUTAGE ms: until they are back, are found, and may vote.
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
  # 2 s, and docker's own time for it.
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
  # What was asked of the stopped ones, and taken back, waits in their sockets. The clients end before
  # the masters go on, so no gap is measured; new ones find a healthy fleet.
  gap=$((1000 + timeout + poll + machine))
  begin
  stops="*" pause_nodes 2 3 5
  rest 1
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
  # Its holders are lost when their validity ends; the others go on, for longer than this. Its processes that wait have
  # been silent by then: three masters only call them. Or they are handed a lock that others released, for a first
  # term, which is shorter. They must not keep the two masters that they reach.
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
  # Again and again just three masters vote, so a lease that was handed over by one that dies is lost. Its careless holder
  # does not release it, and a renewal that reached the two others blocks the name there for a ttl.
  gap=$(minority)
  begin
  for n in 1 2 3 4 5; do
    kill_nodes $n
    start_nodes $n
    # The next one goes when at most this one is out.
    until_true votes 4
  done
  recover
  finish
}

# Many hold a lease when it happens, and for longer than docker takes to start five servers: 2 s to
# 4 s, while clients that wait for them use the processors.
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
  # From the end of a frozen holder's lease others take over at once. But whoever freezes between its
  # request and the answer blocks the name for a ttl, and does not know it.
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
  # From their death: their leases run out.
  gap=$((lease + poll + machine)) section=100ms
  begin
  kill_clients 1
  rest 3
  start_dc 1
  run_load_in 1
  recover
  finish
}

does[misconfigured]="clients with another max_ttl, margin, list or N start again and again, beside masters that are killed"
misconfigured() {
  local n
  # As a rolling restart: what the strangers say binds nobody.
  gap=$(minority)
  begin
  stray_clients
  for n in 1 3 5; do
    kill_nodes $n
    start_nodes $n
    # The next one goes when all vote again, with the strangers still at it.
    until_true votes 5 || die "strangers keep node$n from voting: $(in_dc 2 nodes 2>&1)"
  done
  stop_stray_clients
  recover
  finish
}

does[clock-step]="one master's clock is an hour ahead for 3 s, then right again"
clock-step() {
  # A stepped clock is outside of what exclusion assumes. What is left behind an hour ahead lives for
  # an hour: it is one node, so it keeps nobody out; but a lock may be found there.
  gap=$(minority) may_break='"exclusion","fence"'
  begin
  step_clock 3600
  rest 3
  healed "the clock of node5 is right again"
  set_clock 0
  recover
  finish
}

# ---- heads of lines ----

# Everybody waits in line for most of the time, so every datacenter has heads: who waits for one of 8 names, of
# which two thirds are held by others. The others' order is kept meanwhile, and no line stands still for them.
in_line() {
  section=100ms must_see='"order"' disturbs='["dc1"]' at_least=100
}

# A hand-over that nobody takes is over after its first term.
term=1000

does[head-killed]="kill -9 a datacenter's clients while they wait in line, three times"
head-killed() {
  in_line
  # As in client-killed: their leases run out. Of those who waited nothing is left to hand over to.
  gap=$((lease + poll + machine))
  begin
  for _ in 1 2 3; do
    kill_clients 1
    rest 2
    start_dc 1
    run_load_in 1
    rest 2
  done
  recover
  finish
}

does[head-stopped]="stop a datacenter's clients while they wait in line, for 3 s, three times"
head-stopped() {
  in_line
  # A stopped holder's lease runs out; then it may be handed over to stopped heads, of which each of six tasks is one at
  # most: one is handed over to, and the others have been silent for longer and are only called.
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
  # As if they had been stopped, and the masters do not see it: nobody closes their connections.
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

# The same with a semaphore of three slots for each lock, so that half of those who ask for a name have a slot. "No grant
# for": while a slot was free.
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
  # As frozen-holder. A slot that is free is told to one in front, and its gate is two wide: each of them may be frozen,
  # and that costs a term.
  gap=$((lease + 2 * term + timeout + poll + machine))
  freeze_thrice
}

# ---- read-write locks ----

# The same with a read-write lock for each lock. "No grant for": while nobody had it. Who dies or stops while it waits to
# write keeps readers out for 3 * (poll + timeout), which is less than a lease.
with_rwlocks() {
  locks=(--rwlock)
}

does[rwlock-kill-two]="kill-two with read-write locks, of which four of five sections read"
rwlock-kill-two() {
  with_rwlocks
  kill-two
}

# As restart-all, with leases that outlive the restart by less: the quarantine ends sooner, and so do the last sections.
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
  # Enough of the frozen write. Readers hold writers up as writers do: for a ttl.
  load=(--readers 50)
  gap=$((lease + timeout + poll + machine))
  freeze_thrice
}

# ---- several names at once ----

# Sections of one, two or three of the eight names. "No grant for": while all names of a section were free, until one of
# them was somebody's.
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
  # A section takes two names on average. With 16 names as many sections run at a time as in frozen-holder, so that some of
  # them are in the frozen datacenter.
  names=16
  gap=$((lease + timeout + poll + machine))
  freeze_thrice
}

# ---- can it see what it claims to see? ----

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
  gap=null must_find='"leftover"' load=(--without-rule release-everywhere)
  begin
  stops="*" pause_nodes 2 3 5
  rest 1
  stop_load
  resume_nodes 2 3 5
  # The servers execute what waits in their sockets. A lock that is left behind stays for a ttl, four times as long.
  rest 0.5
  look
  run_load
  rest 2
  finish
}

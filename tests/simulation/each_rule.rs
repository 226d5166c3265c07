//! One rule off: the simulation finds what its trap does, within a bounded number of schedules.
//!
//! `seeds.txt` holds the seed that last found each rule. It is tried first. If the library changed and this seed finds
//! nothing any more, the test searches from the first seed. `make seeds` searches for every rule and writes the file.
//!
//! Two rules are seen to fail only where the simulation lends a hand, because the library as it is
//! never gets there by itself:
//! - `ExactAck`: while a lock stands for its owner nobody else raises its counter, so a raise is
//!   never answered by more than was asked for. In `Bumped` an operator raises counters.
//! - `NeverShorten`: a lease is always extended by the ttl it was granted with, and a later EXTEND
//!   of the same ttl ends later. In `Shortened` a second, shorter EXTEND comes from each holder.

use std::collections::BTreeSet;

use quorate::testing::simulation::{Profile, Rule, Rules, run};

use crate::first_seed;

/// The most schedules that are tried with a rule off.
const MOST: u64 = 3_000;

/// The stored seed of this rule, or None if `QUORATE_SIM_SEED` asks for a search.
fn known(rule: Rule, profile: Profile) -> Option<u64> {
    if std::env::var_os("QUORATE_SIM_SEED").is_some() {
        return None;
    }
    let prefix = format!("{rule:?} {profile:?} ");
    let mut lines = include_str!("seeds.txt").lines();
    lines.find_map(|line| line.strip_prefix(&prefix)?.parse().ok())
}

/// `beside`: what breaks too where the rule is off, and proves nothing of what it is there for.
fn finds(rule: Rule, profile: Profile, invariants: &[&str], beside: &[&str]) {
    let first = first_seed();
    for seed in known(rule, profile).into_iter().chain(first..first + MOST) {
        let Err(failure) = run(seed, profile, Rules::without(rule)) else {
            continue;
        };
        if beside.contains(&failure.invariant()) {
            continue;
        }
        println!("{rule:?} off, in {profile:?}: {failure}");
        assert!(
            invariants.contains(&failure.invariant()),
            "{rule:?} was to be seen by {invariants:?}, not by: {failure}"
        );
        if known(rule, profile).is_some_and(|known| known != seed) {
            println!("its seed in seeds.txt finds nothing any more: run `make seeds`");
        }
        println!("seed of {rule:?} {profile:?} {seed}");
        return;
    }
    panic!("{rule:?} is off, and {MOST} schedules of {profile:?} found nothing");
}

macro_rules! each_rule {
    ($($test:ident: $rule:ident, $profile:ident, [$($invariant:literal),+] $(beside [$($beside:literal),+])?;)*) => {
        $(#[test]
        fn $test() {
            finds(Rule::$rule, Profile::$profile, &[$($invariant),+], &[$($($beside),+)?]);
        })*

        #[test]
        fn every_rule_has_its_test() {
            let tested: BTreeSet<String> = [$(format!("{:?}", Rule::$rule)),*].into();
            let all = Rule::EVERY.iter().map(|rule| format!("{rule:?}")).collect();
            assert_eq!(tested, all);
            if std::env::var_os("QUORATE_SIM_SEED").is_none() {
                for (rule, profile) in [$((Rule::$rule, Profile::$profile)),*] {
                    assert!(known(rule, profile).is_some(), "no seed of {rule:?} in {profile:?}: run `make seeds`");
                }
            }
        }
    };
}

each_rule! {
    the_greatest_token_seen_is_not_enough: EqualTokens, Stormy, ["token order", "token uniqueness"];
    a_raise_that_finds_more_does_not_count: ExactAck, Bumped, ["a token stands on a majority"];
    a_lease_that_comes_too_late_is_none: ValidityAfterVote, Pauses, ["mutual exclusion", "token order"];
    a_retry_is_another_owner: FreshOwner, Digits, ["mutual exclusion"];
    an_extension_after_the_end_revives_nothing: ExtendInTime, Operator, ["a loss is final"];
    a_shorter_extension_takes_nothing_away: NeverShorten, Shortened, ["mutual exclusion"];
    what_is_gone_stays_gone: NeverRecreate, Lasting, ["no key left", "progress"];
    a_quarantined_node_extends_nothing: Guard, Split, ["mutual exclusion"];
    what_was_lost_is_put_back: Repair, Rolling, ["a lease outlives restarts"];
    what_was_evicted_is_not_put_back: EvictionLasts, Evicted, ["an eviction is noticed"];
    a_memory_is_watched_before_it_votes: Quarantine, Split, ["mutual exclusion", "token order"];
    an_old_snapshot_does_not_vote: RunAndRecord, Reboot, ["mutual exclusion", "token order"];
    a_stepped_clock_ends_no_quarantine: WitnessedByClients, Split, ["mutual exclusion"];
    nothing_travels_before_the_handshake: HandshakeFirst, Split, ["mutual exclusion"];
    a_late_grant_is_taken_back_too: ReleaseEverywhere, Lasting, ["no key left", "progress"];
    a_restarted_node_is_not_bootstrapped: BootstrapOnlyNew, Bootstrap, ["mutual exclusion", "token order"];
    a_clock_that_is_behind_is_not_counted: ClockNotBehind, SetBack, ["token order", "token uniqueness"];
    a_proposal_far_ahead_is_capped: ProposalCapped, FarAhead, ["token order", "token uniqueness"];
    counters_are_numbers: NumericCounters, Digits, ["counters never go back", "token order"] beside ["progress"];
    counters_keep_all_their_digits: AllDigits, Stormy, ["counters never go back"];
    old_counters_go_by_age: RotateByAge, Calendar, ["counters never go back", "token order"];
    an_acquire_is_not_sent_again: AcquireOnce, Lasting, ["no key left", "no place left", "progress"];
    a_full_server_frees: DeleteFirst, Full, ["no key left", "progress", "tidy"];
    a_release_is_repeated: ReleaseUntilAnswered, Lasting, ["no key left", "progress"];
    a_release_is_repeated_behind_the_kill: ReleaseBehindKill, Doubtful, ["no key left", "progress"];
    an_error_is_no_refusal: ErrorIsNoAnswer, Stormy, ["refusals are answers"];
    another_runs_ids_are_strangers: KillSameRunOnly, Stormy, ["no stranger dies"];
    one_server_is_one_vote: OneServerOneVote, TwoAddresses, ["mutual exclusion"];
    another_number_of_masters_is_refused: SameFleet, OtherFleet, ["mutual exclusion", "token order"];
    an_evicting_server_is_refused: NoEviction, Evicting, ["mutual exclusion", "token order"] beside ["nobody is overtaken"];
    what_does_not_vote_teaches_nobody: OnlyVotersTeach, Huge, ["the rest goes on voting", "no fight over a record"];
    who_sees_voters_replaces: VoucherReplaces, OtherList, ["the rest goes on voting"];
    a_record_that_never_voted_gives_way: UnusedGivesWay, Looked, ["the rest goes on voting", "progress"];
    a_record_whose_clients_are_there_stays: VisitedStays, Visited, ["the rest goes on voting", "progress"];
    a_stranger_stops_no_quarantine: StrangersChangeNothing, Huge, ["the rest goes on voting"];
    nobody_witnesses_alone: MajorityInSight, Lonely, ["mutual exclusion"];
    a_voter_of_another_fleet_stops: OtherFleetStops, Grown, ["mutual exclusion"];
    another_list_is_another_fleet: SameList, OtherList, ["mutual exclusion", "token order"];
    a_resized_fleet_starts_anew: RunFirst, Resized, ["the rest goes on voting", "progress"];
    nobody_asks_for_more_before_the_raise: RaiseBeforeUse, Early, ["mutual exclusion"];
    minutes_are_counted_though_they_are_not_written: GreaterW, Minutes, ["the rest goes on voting"];
    no_margin_of_ones_own: MarginInRecord, NoMargin, ["token order"];
    what_comes_from_a_disk_keeps_its_terms: DiskVouches, FromDisk, ["mutual exclusion"];
    a_lone_voter_lowers_nothing: LoneVoterLowers, FromDisk, ["mutual exclusion"];
    a_fleet_that_was_used_is_not_new: BootstrapUnused, Bootstrap, ["mutual exclusion", "token order"];
    anothers_data_is_no_guard: OwnGuard, Failover, ["mutual exclusion"] beside ["token order", "token uniqueness", "nobody is overtaken"];
    a_hand_over_names_its_memory: PushCarriesGuard, LineFailover, ["mutual exclusion"];
    a_strangers_hand_over_is_no_vote: PushCarriesGuard, LineForged, ["mutual exclusion", "token order", "token uniqueness"];
    a_hand_over_is_as_old_as_its_request: PushFromItsRequest, LineStorm, ["mutual exclusion", "token order"];
    what_was_given_back_is_over: YieldedIsOver, LinePartial, ["mutual exclusion", "token order", "progress"];
    who_gives_way_gives_way_everywhere: YieldAll, LinePartial, ["progress", "nothing stands still"];
    who_has_not_asked_comes_before_nobody: OnlyLast, LineStorm, ["nobody is overtaken"];
    who_waits_asks_again: JoinAgain, LinePushes, ["progress", "nothing stands still"];
    who_leaves_the_line_tells_everybody: LeaveEverywhere, LineLasting, ["no place left", "no key left", "progress"];
    the_next_is_told: NextIsTold, LineGone, ["nothing stands still"];
    who_has_come_asks_again_soon: SecondAsk, LineGone, ["nothing stands still"];
    who_reaches_no_majority_stands_aside: StandAside, LineCutOff, ["nothing stands still"];
    a_slot_has_a_majority_of_its_own: NumberedSlots, Slots, ["no more than the limit", "mutual exclusion"] beside ["token order", "token uniqueness"];
    a_slot_that_was_given_back_is_no_vote: MoveForgets, SlotsSluggish, ["mutual exclusion", "token order"];
    the_limit_counts_at_the_grant: LimitAtGrant, ResizedStorm, ["who enters fits"];
    a_newer_limit_stands: GreaterVersion, ResizedStorm, ["a limit never goes back", "nothing stands still"];
    every_node_has_the_new_limit: ResizeAll, MissedResize, ["who enters fits"];
    what_is_above_is_counted_on_all_voters: CountAbove, ShrunkSlots, ["who enters fits"];
    the_first_holder_tells_its_limit: SettleLimit, TwoLimits, ["the first limit stands"];
    another_slot_has_another_token: MoveMints, SlotsMany, ["token uniqueness", "token order"];
    who_waits_stands_at_the_same_place_everywhere: SameTicket, ResizedSlots, ["nothing stands still", "progress"];
    a_unit_counts_in_every_interval: SlidingInterval, Limits, ["no more units than the limit"];
    a_memory_without_history_gives_nothing: HistoryOfUnits, LimitsStorm, ["no more units than the limit"];
    what_another_era_counted_is_not_given_back: EraOfUnits, LimitsBack, ["no more units than the limit"];
    a_refund_is_sent_once: RefundOnce, LimitsBack, ["no more units than the limit"];
    a_units_age_counts_from_its_sending: AgeFromSending, LimitsBack, ["no more units than the limit"];
    who_gives_slots_back_gives_all_of_them: YieldAllSlots, SlotsPartial, ["progress", "nothing stands still"];
    a_reader_has_an_end_of_its_own: ReadersOwnTtl, RwlockStorm, ["mutual exclusion", "epochs"];
    a_writer_that_waits_keeps_readers_out: WriterIntent, RwlockCrowd, ["nothing stands still"];
    writers_queue_among_each_other: WritersQueue, RwlockWriters, ["nobody starves"];
    readers_are_let_in_between_writers: ReaderWindow, RwlockCrowd, ["nothing stands still"];
    an_epoch_stands_on_a_majority: EpochStands, RwlockStorm, ["epochs"];
    nothing_is_put_back_beside_others: RepairAlone, RwlockPartial, ["readers or a writer"];
    nobody_writes_while_one_steps_down: DowngradeInPlace, RwlockPartial, ["mutual exclusion"];
    a_node_gives_all_or_none: AllOrNone, Several, ["all or none"];
    one_token_is_newer_than_all: TokenOfAll, SeveralStorm, ["counters never go back", "token order"];
}

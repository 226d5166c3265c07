//! With one rule off, the simulation finds what the rule's trap describes, within a bounded number of schedules.
//!
//! `seeds.txt` holds the seed that last found each rule. It is tried first. If the library has changed and this seed
//! finds nothing any more, the test searches from the first seed. `make seeds` searches for every rule and writes the
//! file.
//!
//! Two rules can be seen to fail only with help from the simulation, because the library never reaches these states by
//! itself:
//! - `ExactAck`: while a lock stands for its owner, nobody else raises its counter. So a raise is never answered with
//!   more than was asked for. In `Bumped` an operator raises counters.
//! - `NeverShorten`: a lease is always extended by the ttl it was granted with, and a later EXTEND of the same ttl ends
//!   later. In `Shortened` each holder sends a second, shorter EXTEND.

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

/// Checks that the simulation finds one of `invariants` with the rule off. `beside` are invariants that break too in
/// that case, and that do not show that the rule is needed.
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
    a_lease_granted_too_late_is_not_valid: ValidityAfterVote, Pauses, ["mutual exclusion", "token order"];
    a_retry_is_another_owner: FreshOwner, Digits, ["mutual exclusion"];
    an_extension_after_the_end_revives_nothing: ExtendInTime, Operator, ["a loss is final"];
    a_shorter_extension_does_not_shorten_a_lease: NeverShorten, Shortened, ["mutual exclusion"];
    an_extension_never_recreates_a_lost_key: NeverRecreate, Lasting, ["no key left", "progress"];
    a_quarantined_node_extends_nothing: Guard, Split, ["mutual exclusion"];
    a_lost_lease_is_repaired: Repair, Rolling, ["a lease outlives restarts"];
    an_evicted_lock_is_not_repaired: EvictionLasts, Evicted, ["an eviction is noticed"];
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
    old_counters_are_forgotten_by_age: RotateByAge, Calendar, ["counters never go back", "token order"];
    an_acquire_is_not_sent_again: AcquireOnce, Lasting, ["no key left", "no place left", "progress"];
    a_full_server_frees: DeleteFirst, Full, ["no key left", "progress", "tidy"];
    a_release_is_repeated: ReleaseUntilAnswered, Lasting, ["no key left", "progress"];
    a_release_is_repeated_behind_the_kill: ReleaseBehindKill, Doubtful, ["no key left", "progress"];
    an_error_is_not_a_refusal: ErrorIsNoAnswer, Stormy, ["refusals are answers"];
    connection_ids_of_another_run_are_not_killed: KillSameRunOnly, Stormy, ["no stranger dies"];
    one_server_is_one_vote: OneServerOneVote, TwoAddresses, ["mutual exclusion"];
    another_number_of_masters_is_refused: SameFleet, OtherFleet, ["mutual exclusion", "token order"];
    an_evicting_server_is_refused: NoEviction, Evicting, ["mutual exclusion", "token order"] beside ["nobody is overtaken"];
    a_record_that_does_not_vote_teaches_no_terms: OnlyVotersTeach, Huge, ["the rest goes on voting", "no fight over a record"];
    a_client_that_sees_voters_replaces_a_record_that_does_not_vote: VoucherReplaces, OtherList, ["the rest goes on voting"];
    a_record_that_never_voted_gives_way: UnusedGivesWay, Looked, ["the rest goes on voting", "progress"];
    a_record_whose_clients_are_there_stays: VisitedStays, Visited, ["the rest goes on voting", "progress"];
    servers_of_a_test_bind_no_other_fleet: ThrowawayGivesWay, Throwaway, ["the rest goes on voting", "progress"];
    a_stranger_stops_no_quarantine: StrangersChangeNothing, Huge, ["the rest goes on voting"];
    a_client_alone_with_a_node_witnesses_nothing: MajorityInSight, Lonely, ["mutual exclusion"];
    a_voter_of_another_fleet_stops_the_client: OtherFleetStops, Grown, ["mutual exclusion"];
    another_list_is_another_fleet: SameList, OtherList, ["mutual exclusion", "token order"];
    a_record_of_another_run_counts_as_missing: RunFirst, Resized, ["the rest goes on voting", "progress"];
    greater_terms_are_not_used_before_the_raise: RaiseBeforeUse, Early, ["mutual exclusion"];
    a_handshake_answers_the_greater_w_without_writing_it: GreaterW, Minutes, ["the rest goes on voting"];
    the_quarantine_follows_the_margin_in_the_record: MarginInRecord, NoMargin, ["token order"];
    a_memory_from_a_disk_keeps_its_terms: DiskVouches, FromDisk, ["mutual exclusion"];
    a_lone_voter_lowers_no_terms: LoneVoterLowers, FromDisk, ["mutual exclusion"];
    a_fleet_that_was_used_is_not_new: BootstrapUnused, Bootstrap, ["mutual exclusion", "token order"];
    a_login_is_renewed_before_it_expires: LoginRenewed, Logins, ["logins are renewed", "a lease outlives restarts"];
    one_node_logs_in_again_at_a_time: OneLoginAtATime, Logins, ["one login at a time"];
    the_data_of_another_node_is_not_a_guard: OwnGuard, Failover, ["mutual exclusion"] beside ["token order", "token uniqueness", "nobody is overtaken"];
    a_hand_over_names_its_memory: PushCarriesGuard, LineFailover, ["mutual exclusion"];
    a_hand_over_by_a_stranger_is_not_a_vote: PushCarriesGuard, LineForged, ["mutual exclusion", "token order", "token uniqueness"];
    a_hand_over_is_as_old_as_its_request: PushFromItsRequest, LineStorm, ["mutual exclusion", "token order"];
    a_yielded_grant_is_over: YieldedIsOver, LinePartial, ["mutual exclusion", "token order", "progress"];
    a_waiter_that_yields_yields_on_every_node: YieldAll, LinePartial, ["progress", "nothing stands still"];
    a_join_without_an_attempt_comes_before_no_waiter: OnlyLast, LineStorm, ["nobody is overtaken"];
    a_waiter_asks_again: JoinAgain, LinePushes, ["progress", "nothing stands still"];
    a_waiter_that_leaves_tells_every_node: LeaveEverywhere, LineLasting, ["no place left", "no key left", "progress"];
    the_next_waiter_is_told_when_to_ask: NextIsTold, LineGone, ["nothing stands still"];
    a_new_waiter_asks_again_soon: SecondAsk, LineGone, ["nothing stands still"];
    a_waiter_without_a_majority_stands_aside: StandAside, LineCutOff, ["nothing stands still"];
    a_hand_over_is_written_before_it_is_published: WriteThenPublish, LineRights, ["mutual exclusion", "token order", "token uniqueness"];
    a_registration_that_fails_leaves_no_key: NothingHalfWritten, LineRights, ["no place left"];
    a_slot_has_a_majority_of_its_own: NumberedSlots, Slots, ["no more than the limit", "mutual exclusion"] beside ["token order", "token uniqueness"];
    a_yielded_slot_is_not_a_vote: MoveForgets, SlotsSluggish, ["mutual exclusion", "token order"];
    the_limit_counts_at_the_grant: LimitAtGrant, ResizedStorm, ["who enters fits"];
    a_newer_limit_stands: GreaterVersion, ResizedStorm, ["a limit never goes back", "nothing stands still"];
    every_node_has_the_new_limit: ResizeAll, MissedResize, ["who enters fits"];
    slots_above_are_counted_over_all_voters: CountAbove, ShrunkSlots, ["who enters fits"];
    the_first_holder_tells_its_limit: SettleLimit, TwoLimits, ["the first limit stands"];
    another_slot_has_another_token: MoveMints, SlotsMany, ["token uniqueness", "token order"];
    a_waiter_has_the_same_ticket_on_every_node: SameTicket, ResizedSlots, ["nothing stands still", "progress"];
    a_unit_counts_in_every_interval: SlidingInterval, Limits, ["no more units than the limit"];
    a_memory_without_history_gives_nothing: HistoryOfUnits, LimitsStorm, ["no more units than the limit"];
    units_of_another_era_are_not_given_back: EraOfUnits, LimitsBack, ["no more units than the limit"];
    a_refund_is_sent_once: RefundOnce, LimitsBack, ["no more units than the limit"];
    a_units_age_counts_from_its_sending: AgeFromSending, LimitsBack, ["no more units than the limit"];
    different_limits_count_the_same_units: SharedLedger, TwoQuotas, ["no more units than the limit"];
    a_changed_limit_counts_the_units_of_the_one_before: SharedLedger, QuotaChanged, ["no more units than the limit"];
    a_waiter_that_yields_slots_yields_all_of_them: YieldAllSlots, SlotsPartial, ["progress", "nothing stands still"];
    a_reader_has_an_end_of_its_own: ReadersOwnTtl, RwlockStorm, ["mutual exclusion", "epochs"];
    a_writer_that_waits_keeps_readers_out: WriterIntent, RwlockCrowd, ["nothing stands still"];
    writers_queue_among_each_other: WritersQueue, RwlockWriters, ["nobody starves"];
    readers_are_let_in_between_writers: ReaderWindow, RwlockCrowd, ["nothing stands still"];
    an_epoch_stands_on_a_majority: EpochStands, RwlockStorm, ["epochs"];
    nothing_is_repaired_beside_a_conflicting_holder: RepairAlone, RwlockPartial, ["readers or a writer"];
    no_writer_gets_in_during_a_downgrade: DowngradeInPlace, RwlockPartial, ["mutual exclusion"];
    a_node_grants_all_names_or_none: AllOrNone, Several, ["all or none"];
    the_token_of_a_set_is_newer_than_the_last_of_each_name: TokenOfAll, SeveralStorm, ["counters never go back", "token order"];
}

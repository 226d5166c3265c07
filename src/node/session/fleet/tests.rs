use super::*;
use crate::base::owner::Label;

const OWN: Terms = Terms {
    max_ttl: Duration::from_secs(30),
    margin: Duration::from_secs(5),
};

fn terms(max_ttl: u64, margin: u64) -> Terms {
    Terms {
        max_ttl: Duration::from_secs(max_ttl),
        margin: Duration::from_secs(margin),
    }
}

fn settings(nodes: usize) -> Settings {
    Settings {
        nodes: (0..nodes).map(|n| format!("n{n}").into()).collect(),
        list: "word".into(),
        ranks: None,
        prefix: "locks".into(),
        node_timeout: Duration::from_millis(500),
        terms: OWN,
        label: Label::new("test").unwrap(),
        channel: "locks:wake:test".into(),
        allow_eviction: false,
        rules: Rules::ALL,
    }
}

fn fleet(nodes: usize) -> Fleet {
    Fleet::new(Arc::new(settings(nodes)))
}

fn at(secs: u64) -> Tick {
    Tick::default().plus(Duration::from_secs(secs))
}

/// A record of 3 masters that votes on these terms.
fn voter(terms: Terms) -> BootRecord {
    BootRecord {
        masters: 3,
        list: "word".into(),
        terms,
        run: "run/00000000/-1".into(),
        id: "id".into(),
        vouched: false,
        used: false,
        witnessed: terms.quarantine(),
    }
}

/// A record that is 1 ms short of voting.
fn waiting(terms: Terms) -> BootRecord {
    BootRecord {
        witnessed: terms.quarantine() - 1,
        ..voter(terms)
    }
}

/// Records of other fleets: one by N, one by the list.
fn others(record: &BootRecord) -> [BootRecord; 2] {
    let (n, list) = (record.clone(), record.clone());
    [
        BootRecord { masters: 5, ..n },
        BootRecord {
            list: "other".into(),
            ..list
        },
    ]
}

#[test]
fn a_client_vouches_by_the_voters_in_sight() {
    let mut fleet = fleet(3);
    assert_eq!(fleet.vouch(), Vouch::Stranger, "nothing is in sight");
    for node in 0..3 {
        fleet.see(at(1), node, Some(&waiting(OWN)));
    }
    assert_eq!(fleet.vouch(), Vouch::Stranger, "none of them votes");
    fleet.see(at(1), 2, Some(&voter(OWN)));
    assert_eq!(fleet.vouch(), Vouch::Voter);
    fleet.see(at(1), 1, Some(&voter(terms(1, 0))));
    assert_eq!(fleet.vouch(), Vouch::Majority, "on whatever terms");
    fleet.see(at(1), 2, None);
    assert_eq!(fleet.vouch(), Vouch::Voter, "out of sight");
}

#[test]
fn a_foreign_voter_ends_vouching_and_a_foreign_non_voter_does_not() {
    for [voting, silent] in [
        [voter(OWN), waiting(OWN)].map(|r| others(&r)[0].clone()),
        [voter(OWN), waiting(OWN)].map(|r| others(&r)[1].clone()),
    ] {
        let mut fleet = fleet(3);
        fleet.see(at(1), 0, Some(&voter(OWN)));
        fleet.see(at(1), 1, Some(&voter(OWN)));
        fleet.see(at(1), 2, Some(&silent));
        assert_eq!((fleet.vouch(), fleet.stop()), (Vouch::Majority, None));
        fleet.see(at(1), 2, Some(&voting));
        assert_eq!(fleet.vouch(), Vouch::Stranger);
        fleet.force(true);
        assert_eq!(fleet.vouch(), Vouch::Stranger, "forced too");
    }
}

#[test]
fn a_forced_bootstrap_vouches() {
    let mut fleet = fleet(3);
    fleet.force(true);
    assert_eq!(fleet.vouch(), Vouch::Majority);
    fleet.force(false);
    assert_eq!(fleet.vouch(), Vouch::Stranger);
}

#[test]
fn a_vouching_client_brings_the_fleets_terms_others_the_greater() {
    let mut fleet = fleet(3);
    assert_eq!(fleet.terms_to_bring(), OWN, "nothing is known");
    fleet.see(at(1), 0, Some(&voter(terms(10, 9))));
    assert_eq!(fleet.terms_to_bring(), terms(10, 9), "vouching");
    assert_eq!(fleet.greatest_terms(), terms(30, 9));
    fleet.force(true);
    assert_eq!(fleet.terms_to_bring(), terms(30, 9), "forced");
    fleet.force(false);
    fleet.see(at(1), 0, None);
    assert_eq!(fleet.terms_to_bring(), terms(30, 9), "no voter in sight");
    assert_eq!(fleet.max_ttl(), Duration::from_secs(10), "the last known");
}

#[test]
fn only_voters_of_this_fleet_teach_and_the_greatest_of_each_counts() {
    let mut fleet = fleet(3);
    assert_eq!(fleet.max_ttl(), OWN.max_ttl, "its own, until it knows");
    fleet.see(at(1), 0, Some(&waiting(terms(86_400, 0))));
    for other in others(&voter(terms(86_400, 0))) {
        fleet.see(at(1), 1, Some(&other));
    }
    assert_eq!(fleet.terms, None);
    fleet.see(at(1), 0, Some(&voter(terms(40, 5))));
    fleet.see(at(1), 1, Some(&voter(terms(30, 6))));
    assert_eq!(fleet.terms, Some(terms(40, 6)));
    // The voters in sight count, not those that were ever in sight.
    fleet.see(at(1), 0, Some(&voter(terms(30, 6))));
    assert_eq!(fleet.terms, Some(terms(30, 6)));
}

#[test]
fn a_client_that_once_met_a_voter_always_says_so() {
    let mut fleet = fleet(3);
    fleet.see(at(1), 0, Some(&waiting(OWN)));
    for other in others(&voter(OWN)) {
        fleet.see(at(1), 1, Some(&other));
    }
    assert!(!fleet.was_used());
    fleet.see(at(1), 0, Some(&voter(terms(1, 0))));
    assert!(fleet.was_used());
    fleet.see(at(1), 0, None);
    fleet.see(at(1), 1, None);
    assert!(fleet.was_used());
}

#[test]
fn a_node_is_witnessed_from_when_a_majority_with_it_is_seen() {
    let mut fleet = fleet(3);
    let record = waiting(OWN);
    fleet.see(at(1), 0, Some(&record));
    assert_eq!(fleet.witnesses_since(0), None, "nobody witnesses alone");
    fleet.see(at(2), 1, Some(&record));
    fleet.see(at(3), 0, Some(&record));
    assert_eq!(fleet.witnesses_since(0), Some(at(2)));
    assert_eq!(fleet.witnesses_since(1), Some(at(2)));
    assert_eq!(fleet.witnesses_since(2), None, "it is not in sight");
    for other in others(&record) {
        fleet.see(at(4), 2, Some(&other));
        assert_eq!(fleet.witnesses_since(2), None, "its record is another's");
        assert_eq!(fleet.witnesses_since(0), Some(at(2)));
    }
    // One node goes and another comes, so there is a majority all the time.
    fleet.see(at(5), 2, Some(&record));
    fleet.see(at(6), 0, None);
    assert_eq!(fleet.witnesses_since(1), Some(at(2)));
    fleet.see(at(7), 1, None);
    fleet.see(at(8), 1, Some(&record));
    assert_eq!(fleet.witnesses_since(1), Some(at(8)), "it was gone");
    assert_eq!(fleet.witnesses_since(9), None, "no such node");
}

#[test]
fn while_a_foreign_voter_is_in_sight_nothing_is_witnessed() {
    for other in others(&voter(OWN)) {
        let mut fleet = fleet(3);
        fleet.see(at(1), 0, Some(&waiting(OWN)));
        fleet.see(at(1), 1, Some(&waiting(OWN)));
        fleet.see(at(2), 2, Some(&other));
        assert_eq!(fleet.witnesses_since(0), None);
        fleet.see(at(3), 2, None);
        assert_eq!(fleet.witnesses_since(0), Some(at(3)), "counted anew");
    }
}

#[test]
fn a_majority_of_five_is_three() {
    let mut fleet = Fleet::new(Arc::new(settings(5)));
    let record = BootRecord {
        masters: 5,
        ..voter(OWN)
    };
    for (node, vouch) in [(0, Vouch::Voter), (1, Vouch::Voter), (2, Vouch::Majority)] {
        assert_eq!(fleet.witnesses_since(0), None);
        fleet.see(at(1), node, Some(&record));
        assert_eq!(fleet.vouch(), vouch);
    }
    assert_eq!(fleet.witnesses_since(0), Some(at(1)));
}

#[test]
fn a_voter_counts_on_the_fleets_terms_alone() {
    let mut fleet = fleet(3);
    assert!(!fleet.counts(OWN), "nothing is known of the fleet");
    fleet.see(at(1), 0, Some(&voter(OWN)));
    assert!(fleet.counts(OWN));
    // Another node votes on more. The first one has to learn that before it counts.
    fleet.see(at(1), 1, Some(&voter(terms(40, 5))));
    assert!(!fleet.counts(OWN) && fleet.counts(terms(40, 5)));
    assert_eq!(fleet.stop(), None, "more is welcome");
}

#[test]
fn a_voter_with_less_than_asked_for_stops_and_goes_on_vouching() {
    for (less, texts, others) in [
        (
            terms(29, 5),
            ["max_ttl is 30", "--max-ttl"],
            ["restart_margin", "--restart-margin"],
        ),
        (
            terms(30, 4),
            ["restart_margin is 5", "--restart-margin"],
            ["max_ttl is", "--max-ttl"],
        ),
    ] {
        let mut fleet = fleet(3);
        fleet.see(at(1), 0, Some(&waiting(less)));
        assert_eq!(fleet.stop(), None, "it does not vote");
        fleet.see(at(1), 0, Some(&voter(less)));
        fleet.see(at(1), 1, Some(&voter(OWN)));
        let why = fleet.stop().unwrap().to_string();
        assert!(texts.iter().all(|text| why.contains(text)), "{why}");
        assert!(!others.iter().any(|text| why.contains(text)), "{why}");
        assert!(!fleet.counts(OWN) && !fleet.counts(less));
        assert_eq!(fleet.vouch(), Vouch::Majority);
        assert_eq!(fleet.witnesses_since(0), Some(at(1)));
        fleet.see(at(2), 0, Some(&voter(OWN)));
        assert_eq!(fleet.stop(), None);
        assert!(fleet.counts(OWN));
    }
}

#[test]
fn only_voting_or_vouched_records_count_as_having_less() {
    let vouched = |terms| BootRecord {
        vouched: true,
        ..waiting(terms)
    };
    for less in [terms(29, 5), terms(30, 4)] {
        for (record, has_less) in [
            (voter(less), true),
            (vouched(less), true),
            (waiting(less), false),
            (voter(OWN), false),
            (vouched(OWN), false),
        ] {
            let mut fleet = fleet(3);
            fleet.see(at(1), 1, Some(&record));
            assert_eq!(fleet.has_less(), has_less, "{record}");
            fleet.see(at(1), 1, None);
            assert!(!fleet.has_less(), "out of sight");
        }
        let mut fleet = fleet(3);
        for (node, other) in others(&vouched(less)).iter().enumerate() {
            fleet.see(at(1), node, Some(other));
        }
        assert!(!fleet.has_less(), "of other fleets");
    }
}

#[test]
fn a_foreign_voter_stops_and_the_reason_names_it_and_the_way_out() {
    for (other, difference) in others(&voter(terms(1, 0)))
        .iter()
        .zip(["5 masters", "other"])
    {
        let mut fleet = fleet(3);
        fleet.see(at(1), 0, Some(&voter(OWN)));
        fleet.see(at(1), 2, Some(other));
        let why = fleet.stop().unwrap().to_string();
        assert!(why.contains("n2 votes for another fleet"), "{why}");
        // The refusal of that node itself names both sides, and what to do.
        let both = format!("{}; {}", fleet.difference(other), fleet.forget_hint());
        for text in [
            difference,
            "3 masters",
            "fleet id",
            "DEL locks:boot locks:open",
        ] {
            assert!(both.contains(text), "{text}: {both}");
        }
        assert!(!fleet.counts(OWN));
        fleet.see(at(2), 2, None);
        assert_eq!(fleet.stop(), None, "out of sight");
    }
}

#[test]
fn every_node_is_met_again_when_a_record_terms_or_reason_to_stop_change() {
    let mut fleet = fleet(3);
    assert!(!fleet.take_moved());
    fleet.see(at(1), 0, Some(&waiting(OWN)));
    assert!(fleet.take_moved(), "what was read of the others may be old");
    fleet.see(at(1), 0, Some(&waiting(OWN)));
    assert!(!fleet.take_moved(), "nothing was learned");
    fleet.see(at(2), 0, Some(&voter(OWN)));
    assert!(fleet.take_moved() && !fleet.take_moved(), "told once");
    assert_eq!(fleet.moved_at(), at(2));
    fleet.see(at(3), 1, Some(&voter(OWN)));
    assert!(fleet.take_moved());
    fleet.see(at(3), 0, None);
    fleet.see(at(3), 1, None);
    fleet.see(at(3), 1, Some(&voter(OWN)));
    fleet.see(at(3), 1, None);
    assert!(!fleet.take_moved(), "the last known terms stay");
    fleet.see(at(4), 0, Some(&voter(terms(31, 5))));
    assert!(fleet.take_moved());
    let [other, _] = others(&voter(OWN));
    fleet.see(at(5), 1, Some(&other));
    assert!(fleet.take_moved());
    fleet.see(at(6), 1, None);
    assert!(fleet.take_moved());
    assert_eq!(fleet.moved_at(), at(6));
}

#[test]
fn two_addresses_of_one_process_are_found() {
    let mut fleet = fleet(3);
    assert_eq!(fleet.claim_run(0, "a/00000000/-1"), Ok(()));
    assert_eq!(fleet.claim_run(0, "a/12345678/7"), Ok(()), "itself");
    assert_eq!(fleet.claim_run(1, "a/00000000/-1"), Err(0));
    fleet.forget_run(0);
    assert_eq!(fleet.claim_run(1, "a/00000000/-1"), Ok(()));
}

/// The effect of each trap of §10 when its rule is off.
#[cfg(feature = "test-util")]
mod without {
    use super::*;

    fn fleet(rule: Rule) -> Fleet {
        Fleet::new(Arc::new(Settings {
            rules: Rules::without(rule),
            ..settings(3)
        }))
    }

    #[test]
    fn only_voters_teach() {
        let mut fleet = fleet(Rule::OnlyVotersTeach);
        fleet.see(at(1), 0, Some(&waiting(terms(86_400, 5))));
        assert_eq!(fleet.max_ttl(), Duration::from_secs(86_400));
    }

    #[test]
    fn majority_in_sight() {
        let mut fleet = fleet(Rule::MajorityInSight);
        fleet.see(at(1), 0, Some(&waiting(OWN)));
        assert!(fleet.witnesses_since(0).is_some(), "alone");
    }

    #[test]
    fn other_fleet_stops() {
        let mut fleet = fleet(Rule::OtherFleetStops);
        let [other, _] = others(&voter(OWN));
        fleet.see(at(1), 0, Some(&voter(OWN)));
        fleet.see(at(1), 1, Some(&other));
        assert_eq!((fleet.vouch(), fleet.stop()), (Vouch::Voter, None));
    }

    #[test]
    fn raise_before_use() {
        let mut fleet = fleet(Rule::RaiseBeforeUse);
        fleet.see(at(1), 0, Some(&voter(terms(29, 5))));
        assert_eq!(fleet.stop(), None);
        assert!(fleet.counts(terms(29, 5)));
    }

    #[test]
    fn same_fleet_and_same_list() {
        let others = others(&voter(OWN));
        for (rule, other) in [Rule::SameFleet, Rule::SameList].into_iter().zip(&others) {
            let mut fleet = fleet(rule);
            fleet.see(at(1), 0, Some(other));
            assert_eq!((fleet.vouch(), fleet.stop()), (Vouch::Voter, None));
        }
    }
}

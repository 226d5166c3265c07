use super::*;

const OWN: Terms = terms(30, 5);
/// Z of these terms.
const Z: u64 = 35_300;
/// G. Any value below Z would do.
const G: u64 = 6_500;

const MODES: [Mode; 3] = [Mode::New, Mode::Raise, Mode::Forced];

const fn terms(max_ttl: u64, margin: u64) -> Terms {
    Terms {
        max_ttl: Duration::from_secs(max_ttl),
        margin: Duration::from_secs(margin),
    }
}

/// Three nodes, each witnessed for this long in ms.
fn nodes(witnessed: [u64; 3]) -> Vec<(Arc<str>, BootRecord)> {
    let node = |(n, witnessed)| {
        let record = BootRecord {
            masters: 3,
            list: "word".into(),
            terms: OWN,
            run: "run/00000000/-1".into(),
            id: "id".into(),
            vouched: false,
            used: false,
            witnessed,
        };
        (format!("n{n}").into(), record)
    };
    witnessed.into_iter().enumerate().map(node).collect()
}

fn unforced(nodes: &[(Arc<str>, BootRecord)], own: Terms) -> Result<Next, String> {
    decide(nodes, own, Mode::New, G, Rules::ALL)
}

/// Asserts that the bootstrap is refused, and that the reason contains all these texts.
#[track_caller]
fn refused(next: Result<Next, String>, texts: &[&str]) {
    let why = next.unwrap_err();
    assert!(texts.iter().all(|text| why.contains(text)), "{why}");
}

#[test]
fn g_is_the_longest_silence_of_a_living_client() {
    let g = long_enough(Duration::from_millis(500));
    assert_eq!(g, Duration::from_millis(5000 + 500 + 1000));
}

#[test]
fn nothing_is_to_do_if_all_nodes_vote_with_enough_terms() {
    for mode in MODES {
        for own in [OWN, terms(1, 0)] {
            let next = decide(&nodes([Z; 3]), own, mode, G, Rules::ALL);
            assert_eq!(next, Ok(Next::Done));
        }
    }
}

#[test]
fn greater_terms_are_a_raise_if_all_nodes_vote() {
    for mode in MODES {
        for own in [terms(31, 5), terms(30, 6)] {
            let next = decide(&nodes([Z; 3]), own, mode, G, Rules::ALL);
            assert_eq!(next, Ok(Next::Admit(Mode::Raise)));
        }
        // A raise that broke off half-way.
        let mut half = nodes([100_000; 3]);
        half[1].1.terms = terms(40, 5);
        let next = decide(&half, OWN, mode, G, Rules::ALL);
        assert_eq!(next, Ok(Next::Admit(Mode::Raise)));
    }
}

#[test]
fn force_skips_the_checks_of_new_masters() {
    let mut all = nodes([Z, 0, Z - 1]);
    all[1].1.used = true;
    let next = decide(&all, OWN, Mode::Forced, G, Rules::ALL);
    assert_eq!(next, Ok(Next::Admit(Mode::Forced)));
}

#[test]
fn a_raise_waits_for_non_voting_nodes_and_never_admits_them() {
    let mut used = nodes([G, 300, 0]);
    used[1].1.used = true;
    for all in [nodes([0; 3]), nodes([G; 3]), nodes([Z, Z, 0]), used] {
        for own in [OWN, terms(60, 5)] {
            let next = decide(&all, own, Mode::Raise, G, Rules::ALL);
            assert_eq!(next, Ok(Next::Wait));
        }
    }
}

#[test]
fn nodes_beside_a_voter_do_not_count_as_new() {
    let texts = ["n1 votes", "35.3 s", "force"];
    refused(unforced(&nodes([Z - 1, Z, 0]), OWN), &texts);
    refused(unforced(&nodes([Z - 1, Z, Z - G - 1]), OWN), &["6.5 s"]);
    // The error names the longest wait of all nodes. Each wait follows from the node's own terms.
    let mut all = nodes([0, Z, 0]);
    all[2].1.terms = terms(60, 5);
    refused(unforced(&all, OWN), &["n1 votes", "65.6 s"]);
}

#[test]
fn a_quarantine_that_is_over_within_g_is_waited_for() {
    assert_eq!(unforced(&nodes([Z, Z - G, Z]), OWN), Ok(Next::Wait));
}

#[test]
fn masters_that_were_used_are_not_new() {
    let mut all = nodes([Z - 1, G, 300]);
    all[2].1.used = true;
    let texts = ["n2 was told", "in use", "35.0 s", "force"];
    refused(unforced(&all, OWN), &texts);
}

#[test]
fn new_masters_are_watched_for_g_and_then_asked_for_counters() {
    for (w, next) in [
        ([0, 0, 0], Next::Wait),
        ([G, G - 1, G], Next::Wait),
        ([G, G, G], Next::Survey),
        ([Z - 1, G, G + 1], Next::Survey),
    ] {
        assert_eq!(unforced(&nodes(w), OWN), Ok(next));
    }
    let mut greater = nodes([G; 3]);
    greater[0].1.terms = terms(60, 5);
    assert_eq!(unforced(&greater, OWN), Ok(Next::Survey), "it is joined");
}

#[cfg(feature = "test-util")]
#[test]
fn without_the_rules_any_node_counts_as_new() {
    let rules = Rules::without(Rule::BootstrapOnlyNew);
    let next = decide(&nodes([Z, G, G]), OWN, Mode::New, G, rules);
    assert_eq!(next, Ok(Next::Admit(Mode::Forced)));
    let rules = Rules::without(Rule::BootstrapUnused);
    let mut used = nodes([0; 3]);
    used[0].1.used = true;
    let next = decide(&used, OWN, Mode::New, G, rules);
    assert_eq!(next, Ok(Next::Admit(Mode::Forced)));
}

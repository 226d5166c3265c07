use std::{sync::Arc, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{Error, FencingToken};

fn report(votes: Vec<Vote>) -> Report {
    let nodes = votes.into_iter().zip(1..).map(|(vote, n)| NodeReport {
        node: format!("10.0.0.{n}:6379").into(),
        vote,
        holder: None,
        name: None,
    });
    Report::new("a", 3, nodes.collect(), None)
}

fn missing(silences: Vec<Silence>) -> String {
    Missing(&report(silences.into_iter().map(Vote::None).collect())).to_string()
}

fn refused(why: &str) -> Silence {
    Silence::Unfit(why.to_owned())
}

#[test]
fn silences_without_a_reason_are_counted() {
    assert_eq!(missing(vec![]), "");
    let said = missing(vec![
        Silence::Quarantined(Duration::ZERO),
        Silence::Stalled,
        Silence::TimedOut,
        Silence::Stalled,
        Silence::ConnectionLost,
        Silence::ScriptsFlushed,
        Silence::NotAdmitted,
        Silence::OutOfReach(Duration::from_millis(150)),
    ]);
    assert_eq!(
        said,
        " (2 stalled, 1 without an answer in time, 1 whose connection was lost, 1 quarantined, \
         1 whose scripts were flushed, 1 whose memory changed, 1 too far away for this limit)"
    );
    let votes = [Vote::NotOurs, Vote::Confirmed, Vote::NotWaitedFor];
    let report = report(votes.to_vec());
    let not_ours = " (1 where this client does not have the lock)";
    assert_eq!(Missing(&report).to_string(), not_ours);
    assert_eq!(answered(&report), 2);
}

#[test]
fn reasons_come_last_and_equal_ones_are_told_once() {
    let acl = || refused("its ACL withholds HMGET");
    assert_eq!(
        missing(vec![acl(), Silence::Stalled, acl(), acl()]),
        " (1 stalled; 3 refused: its ACL withholds HMGET)"
    );
    let said = missing(vec![
        refused("a"),
        acl(),
        acl(),
        refused("b"),
        refused("c"),
        Silence::Failed("OOM command not allowed".into()),
    ]);
    assert_eq!(
        said,
        " (2 refused: its ACL withholds HMGET; 1 refused: a; 2 refused: other reasons; \
         1 with an error: OOM command not allowed)"
    );
}

#[test]
fn text_that_only_looks_like_an_address_stays() {
    for why in [
        "grant them with ACL SETUSER (~app:1:*)",
        "it votes for another fleet (fleet id \"payments:1\"; this client: \"payments:2\")",
        "ERR Error running script: on @user_script:12.",
        "its address cannot be looked up: failed to lookup address information: Name or service not known",
    ] {
        let nodes = ["address:1", "name:6379", "service:6379"].map(|node| NodeReport {
            node: node.into(),
            vote: Vote::None(refused(why)),
            holder: None,
            name: None,
        });
        let said = Missing(&Report::new("a", 2, nodes.to_vec(), None)).to_string();
        assert_eq!(said, format!(" (3 refused: {why})"));
    }
    assert_eq!(
        missing(vec![refused(
            "only valid for DnsName(\"db-7.internal\") or DnsName(\"db\")"
        )]),
        " (1 refused: only valid for DnsName(\"…\") or DnsName(\"…\"))"
    );
}

#[test]
fn the_reason_of_unreachable_nodes_is_told_if_all_agree() {
    let no_connection = |n| {
        let why = format!("no connection to 10.0.0.{n}:6379: Connection refused (os error 111)");
        Silence::Unreachable(why)
    };
    assert_eq!(
        missing(vec![no_connection(1), no_connection(2)]),
        " (2 unreachable: no connection to …: Connection refused (os error 111))"
    );
    let closed = Silence::Unreachable("closed".into());
    assert_eq!(missing(vec![no_connection(1), closed]), " (2 unreachable)");
}

#[test]
fn an_address_in_a_reason_is_left_out() {
    for (why, told) in [
        (
            "it is the same server as 10.0.0.1:6379: give every master one address",
            "it is the same server as another node: give every master one address",
        ),
        (
            "not counted while 10.0.0.1:6379 votes for another fleet: see the reason given for 10.0.0.1:6379",
            "not counted while another node votes for another fleet: see the reason given for another node",
        ),
        ("MOVED 12 10.9.9.9:7000", "MOVED 12 …"),
        (
            "try 10.0.0.3, or ::1, or [fe80::1%eth0]:6379.",
            "try …, or …, or ….",
        ),
        ("ask db-1.internal:6379 (redis://u@h:1/0)", "ask … (…)"),
        ("no such file: /run/redis.sock", "no such file: …"),
        (r"two lines\n10.0.0.9\r\n", r"two lines\n…\r\n"),
        ("not valid for \"10.0.0.1\"", "not valid for \"…\""),
        (
            "its version is 6.2.14: DEL quorate:boot there; use redis://, max_ttl is 3.0 s",
            "its version is 6.2.14: DEL quorate:boot there; use redis://, max_ttl is 3.0 s",
        ),
    ] {
        let own = Vote::None(refused(why));
        let report = report(vec![Vote::Confirmed, own]);
        let told = format!(" (1 refused: {told})");
        assert_eq!(Missing(&report).to_string(), told);
    }
    // The host of a node, wherever a certificate names it.
    let node = |node: &str, vote| NodeReport {
        node: node.into(),
        vote,
        holder: None,
        name: None,
    };
    let why = refused("its certificate is not valid for name db-1");
    let nodes = vec![
        node("db-1:6379", Vote::None(why)),
        node("/run/s", Vote::Confirmed),
    ];
    let told = Missing(&Report::new("a", 2, nodes, None)).to_string();
    assert_eq!(
        told,
        " (1 refused: its certificate is not valid for name …)"
    );
}

fn silences() -> impl Strategy<Value = Silence> {
    let reason = prop_oneof![
        any::<String>(),
        prop::collection::vec(
            prop_oneof![
                "10\\.[1-9][0-9]?\\.0\\.[1-9]",
                "10\\.[1-9][0-9]?\\.0\\.[1-9]:6379",
                "\\[2001:db8::[1-9]\\]:6379",
                "2001:db8::[1-9]",
                "[ ,;:.()'\"=]{1,3}",
                "\n",
                "[a-z]{1,9} ",
            ],
            0..20,
        )
        .prop_map(|parts| parts.join(" ")),
    ];
    (reason, 0..7).prop_map(|(why, kind)| match kind {
        0 => Silence::Unreachable(why),
        1 => Silence::Unfit(why),
        2 => Silence::Failed(why),
        3 => Silence::Stalled,
        4 => Silence::Quarantined(Duration::from_millis(7)),
        5 => Silence::NotAdmitted,
        _ => Silence::TimedOut,
    })
}

fn votes() -> impl Strategy<Value = Vote> {
    prop_oneof![
        4 => silences().prop_map(Vote::None),
        1 => Just(Vote::Granted(FencingToken::from_counter(7))),
        1 => Just(Vote::Held(Some(Duration::from_secs(1)))),
        1 => Just(Vote::NotOurs),
        1 => Just(Vote::Confirmed),
    ]
}

proptest! {
    #[test]
    fn an_error_is_one_line_of_bounded_length_without_addresses(
        votes in prop::collection::vec(votes(), 1..9),
        subject in "\\PC{1,30}\n?",
        needed in 1..6usize,
    ) {
        let nodes: Vec<NodeReport> = votes.into_iter().zip(1..).map(|(vote, n)| NodeReport {
            node: format!("2001:db8::{n}:6379").into(),
            vote,
            holder: Some(Arc::from("web")),
            name: None,
        }).collect();
        let report = Report::new(subject.clone(), needed, nodes, Some(Duration::from_secs(1)));
        for error in [
            Error::Held(report.clone()),
            Error::NoQuorum(report.clone()),
            Error::TooSlow(report.clone()),
            Error::Quarantined(report.clone()),
        ] {
            for text in [error.to_string(), format!("{error:?}"), format!("{error:#?}")] {
                prop_assert!(!text.contains(char::is_control), "{text:?}");
                prop_assert!(text.chars().count() < 8 * subject.len() + 3_000, "{text}");
                prop_assert!(!text.contains("2001:db8"), "{text}");
                let dots = text.split("10.").skip(1);
                prop_assert!(!dots.clone().any(|at| at.contains(".0.")), "{text}");
            }
        }
    }
}

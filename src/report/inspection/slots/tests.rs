use std::time::Duration;

use super::*;
use crate::Silence;

fn entry(who: &str) -> String {
    format!("{who}@{who}:1")
}

fn slot(at: &str, number: u32, who: &str, token: u64) -> Slot {
    Slot {
        number,
        holder: Holder {
            entry: entry(who),
            label: format!("{who}:1"),
            remaining: Some(Duration::from_millis(8_000 + token)),
        },
        token: Some(FencingToken::from_counter(token)),
        nodes: vec![at.into()],
        is_held: false,
    }
}

fn waiter(at: &str, who: &str, waited: u64) -> Waiter {
    Waiter {
        entry: entry(who),
        label: format!("{who}:1"),
        waited: Duration::from_millis(waited),
        nodes: vec![at.into()],
    }
}

/// A node, its limit, its slots with their holders and tokens, and its waiters.
fn node(
    at: &str,
    limit: (u64, u32),
    slots: &[(u32, &str, u64)],
    line: &[(&str, u64)],
) -> NodeInspection {
    let mut bits = Taken::default();
    slots.iter().for_each(|slot| bits.set(slot.0, true));
    let slots = slots
        .iter()
        .map(|(number, who, token)| slot(at, *number, who, *token));
    let semaphore = NodeSlots {
        limit: Some(limit.1),
        version: limit.0,
        taken: bits.count(),
        bits,
        slots: slots.collect(),
        line: line
            .iter()
            .map(|(who, waited)| waiter(at, who, *waited))
            .collect(),
        waiting: line::length(line.len()),
    };
    NodeInspection {
        node: at.into(),
        holder: None,
        token: None,
        line: Vec::new(),
        waiting: 0,
        semaphore: Some(semaphore),
        rwlock: None,
        silence: None,
    }
}

fn silent(at: &str) -> NodeInspection {
    NodeInspection {
        semaphore: None,
        silence: Some(Silence::Stalled),
        ..node(at, (1, 1), &[], &[])
    }
}

fn seen(nodes: impl IntoIterator<Item = NodeInspection>) -> Inspection {
    Inspection {
        name: "pool".into(),
        nodes: nodes.into_iter().collect(),
    }
}

fn first_line(seen: &Inspection) -> String {
    seen.to_string().lines().next().unwrap().to_owned()
}

#[test]
fn the_text_shows_slots_with_their_holders_and_the_waiters() {
    let line = [("fay", 4_200), ("gil", 150)];
    let seen = seen([
        node(
            "h:1",
            (1, 5),
            &[(0, "ann", 42), (2, "bob", 7), (4, "eve", 3)],
            &line,
        ),
        node("h:2", (1, 5), &[(0, "ann", 42), (2, "bob", 9)], &line[..1]),
        node("h:3", (1, 5), &[(0, "ann", 42), (2, "kim", 8)], &[]),
        silent("h:4"),
        node("h:5", (1, 5), &[(2, "bob", 7)], &line),
    ]);
    assert_eq!(
        seen.to_string(),
        r#""pool": 2 of 5 slots are taken; 2 wait in the queue

NODE  LIMIT  TAKEN  WAITING  STATE
h:1   5      3      2        voting
h:2   5      2      1        voting
h:3   5      2      0        voting
h:4   -      -      -        stalled: an earlier request is unanswered
h:5   5      1      2        voting

SLOT  HOLDER  REMAINING  TOKEN  ON
0     ann:1   8.0 s      42     3 of 5 nodes
2     bob:1   8.0 s      9      3 of 5 nodes
2     kim:1   8.0 s      8      1 of 5 nodes: no majority
4     eve:1   8.0 s      3      1 of 5 nodes: no majority

WAITER  WAITED  ON
fay:1   4.2 s   3 of 5 nodes
gil:1   150 ms  2 of 5 nodes"#
    );
    let slots = seen.slots();
    assert_eq!(slots[1].nodes, ["h:1", "h:2", "h:5"].map(Arc::from));
    assert_eq!(
        slots[1].holder.remaining,
        Some(Duration::from_millis(8_009)),
        "the longest that a node says"
    );
    assert_eq!(
        slots[1].to_string(),
        "slot 2: bob:1, for 8.0 s more unless it is renewed"
    );
}

#[test]
fn the_newest_limit_counts_and_the_smaller_of_one_version() {
    let of = |limits: [(u64, u32); 3]| seen(limits.map(|limit| node("h", limit, &[], &[])));
    assert_eq!(of([(1, 3), (2, 9), (1, 3)]).limit(), Some(9));
    assert_eq!(of([(2, 8), (2, 5), (1, 3)]).limit(), Some(5));
    assert_eq!(seen([silent("h"), silent("h"), silent("h")]).limit(), None);
}

#[test]
fn the_first_line_says_what_is_known() {
    let three = |slots: &[(u32, &str, u64)], limit| {
        let on = || node("h", (1, limit), slots, &[]);
        [on(), on(), on()]
    };
    let (ann, bob) = ((0, "ann", 1), (3, "bob", 1));
    for (nodes, said) in [
        (three(&[], 5), "0 of 5 slots are taken"),
        (three(&[ann], 1), "1 of 1 slot is taken"),
        (three(&[ann, bob], 2), "2 of 2 slots are taken"),
        (
            three(&[ann, bob], 1),
            "2 slots are taken, and the limit is now 1",
        ),
        (
            [silent("h"), silent("h"), node("h", (1, 5), &[ann], &[])],
            "the taken slots are unknown, 1 of 3 nodes answered and 2 are needed",
        ),
    ] {
        assert_eq!(first_line(&seen(nodes)), format!("\"pool\": {said}"));
    }
    let mut unlimited = three(&[ann], 1);
    for node in &mut unlimited {
        node.semaphore.as_mut().unwrap().limit = None;
    }
    assert_eq!(
        first_line(&seen(unlimited)),
        "\"pool\": 1 slot is taken, and no node knows the limit"
    );
}

#[test]
fn a_slot_with_a_different_holder_on_each_node_is_not_held() {
    let split = seen([
        node("h:1", (1, 2), &[(0, "ann", 1)], &[]),
        node("h:2", (1, 2), &[(0, "bob", 1)], &[]),
        node("h:3", (1, 2), &[], &[]),
    ]);
    assert_eq!(split.taken_slots(), 0);
    assert!(split.slots().iter().all(|slot| !slot.is_held));
}

#[test]
fn slots_whose_holders_are_not_named_are_counted() {
    let names: Vec<String> = (0..30).map(|i| format!("w{i}")).collect();
    let slots: Vec<(u32, &str, u64)> = (0..30)
        .zip(&names)
        .map(|(number, who)| (number, who.as_str(), 1))
        .collect();
    let on = |unnamed| {
        let mut node = node("h", (1, 40), &slots, &[]);
        node.semaphore.as_mut().unwrap().slots.truncate(unnamed);
        node
    };
    // One node names more of them, which does not change the count.
    let seen = seen([on(10), on(30), on(10)]);
    assert_eq!(seen.taken_slots(), 30);
    let text = seen.to_string();
    assert!(
        text.starts_with("\"pool\": 30 of 40 slots are taken\n"),
        "{text}"
    );
    assert!(text.ends_with("\nand 20 more"), "{text}");
}

#[test]
fn a_slot_holder_is_not_shown_as_a_waiter_on_a_late_node() {
    let seen = seen([
        node("h:1", (1, 1), &[(0, "ann", 1)], &[("bob", 10)]),
        node("h:2", (1, 1), &[(0, "ann", 1)], &[("bob", 10)]),
        node("h:3", (1, 1), &[], &[("ann", 900), ("bob", 10)]),
    ]);
    let labels: Vec<String> = seen
        .line_for_slots()
        .into_iter()
        .map(|one| one.label)
        .collect();
    assert_eq!(labels, ["bob:1"]);
    assert_eq!(seen.waiting_for_slots(), 1);
}

#[test]
fn a_mutex_of_the_same_name_is_shown_first_where_it_is_used() {
    let with = |holder: Option<&str>, waits: &[(&str, u64)]| NodeInspection {
        holder: holder.map(|who| slot("h", 0, who, 1).holder),
        line: waits
            .iter()
            .map(|(who, ms)| waiter("h", who, *ms))
            .collect(),
        waiting: line::length(waits.len()),
        ..node("h", (1, 2), &[], &[])
    };
    let both = |holder, waits| {
        let on = || with(holder, waits);
        seen([on(), on(), on()]).to_string()
    };
    let held = both(Some("ann"), &[]);
    assert!(
        held.starts_with("\"pool\" is held on 3 of 3 nodes by ann:1"),
        "{held}"
    );
    assert!(
        held.contains("\n\n\"pool\": 0 of 2 slots are taken\n\n"),
        "{held}"
    );
    let line = both(None, &[("bob", 1)]);
    assert!(
        line.starts_with("\"pool\" is free; 1 waits in the queue\n"),
        "{line}"
    );
    assert!(both(None, &[]).starts_with("\"pool\": 0 of 2 slots are taken\n"));
}

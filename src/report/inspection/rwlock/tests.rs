use super::*;
use crate::Silence;

fn holder(who: &str, left: u64) -> Holder {
    Holder {
        entry: format!("{who}@{who}:1"),
        label: format!("{who}:1"),
        remaining: Some(Duration::from_millis(left)),
    }
}

/// A node, its writer, its readers with the time they have left, and the writers that wait.
fn node(
    at: &str,
    writer: Option<&str>,
    readers: &[(&str, u64)],
    writers: &[&str],
) -> NodeInspection {
    let named = readers.iter().map(|(who, left)| Reader {
        holder: holder(who, *left),
        nodes: vec![at.into()],
        is_held: false,
    });
    let waiting = writers.iter().map(|who| WaitingWriter {
        entry: format!("{who}@{who}:1"),
        label: format!("{who}:1"),
        remaining: Duration::from_millis(1_500),
        nodes: vec![at.into()],
    });
    let rwlock = NodeRwlock {
        writer: writer.map(|who| holder(who, 8_250)),
        token: Some(FencingToken::from_counter(42)),
        readers: named.collect(),
        reading: length(readers.len()),
        writers: waiting.collect(),
        waiting: length(writers.len()),
    };
    NodeInspection {
        node: at.into(),
        holder: None,
        token: None,
        line: Vec::new(),
        waiting: 0,
        semaphore: None,
        rwlock: Some(rwlock),
        silence: None,
    }
}

fn silent(at: &str) -> NodeInspection {
    NodeInspection {
        rwlock: None,
        silence: Some(Silence::Stalled),
        ..node(at, None, &[], &[])
    }
}

fn seen(nodes: impl IntoIterator<Item = NodeInspection>) -> Inspection {
    Inspection {
        name: "index".into(),
        nodes: nodes.into_iter().collect(),
    }
}

#[test]
fn the_text_shows_readers_and_waiting_writers() {
    let seen = seen([
        node("h:1", None, &[("ann", 9_900), ("bob", 900)], &["eve"]),
        node("h:2", None, &[("ann", 9_800), ("joe", 9_990)], &["eve"]),
        node("h:3", None, &[("ann", 9_700), ("bob", 950)], &[]),
        silent("h:4"),
        node("h:5", None, &[("bob", 800)], &["eve"]),
    ]);
    assert_eq!(
        seen.to_string(),
        r#""index" is held for reading by 2; 1 waits to write

NODE  WRITER  REMAINING  READERS  WAITING  TOKEN  STATE
h:1   -       -          2        1        42     voting
h:2   -       -          2        1        42     voting
h:3   -       -          2        0        42     voting
h:4   -       -          -        -        -      stalled: an earlier request is unanswered
h:5   -       -          1        1        42     voting

READER  REMAINING  ON
ann:1   9.9 s      3 of 5 nodes
bob:1   950 ms     3 of 5 nodes
joe:1   9.9 s      1 of 5 nodes: no majority

WAITS TO WRITE  ON
eve:1           3 of 5 nodes"#
    );
    assert!(seen.writer().is_none() && seen.holder().is_none());
    assert_eq!((seen.reading(), seen.waiting_to_write()), (2, 1));
    let held: Vec<bool> = seen.readers().iter().map(|one| one.is_held).collect();
    assert_eq!(held, [true, true, false]);
    assert_eq!(
        seen.newest_rwlock_token().map(|token| token.as_u64()),
        Some(42)
    );
}

#[test]
fn the_text_shows_the_writer() {
    let seen = seen([
        node("h:1", Some("ann"), &[], &["eve", "joe"]),
        node("h:2", Some("ann"), &[], &["joe"]),
        node("h:3", Some("bob"), &[], &[]),
    ]);
    assert_eq!(
        seen.to_string(),
        r#""index" is held for writing on 2 of 3 nodes by ann:1, for 8.2 s more unless it is renewed; 2 wait to write

NODE  WRITER  REMAINING  READERS  WAITING  TOKEN  STATE
h:1   ann:1   8.2 s      0        2        42     voting
h:2   ann:1   8.2 s      0        1        42     voting
h:3   bob:1   8.2 s      0        0        42     voting

WAITS TO WRITE  ON
eve:1           1 of 3 nodes
joe:1           2 of 3 nodes"#
    );
    assert_eq!(seen.writer().map(|writer| &*writer.label), Some("ann:1"));
    assert_eq!(seen.waiting_writers()[1].nodes.len(), 2);
}

#[test]
fn an_unknown_state_is_not_called_free() {
    let free = || node("h:1", None, &[], &[]);
    let waits = || node("h:1", None, &[], &["eve"]);
    let reads = |who| node("h:2", None, &[(who, 10)], &[]);
    let writes = |who| node("h:2", Some(who), &[], &[]);
    for (nodes, verdict) in [
        (
            vec![waits(), waits(), free()],
            ": nobody reads or writes; 1 waits to write",
        ),
        (
            vec![reads("ann"), writes("bob"), free()],
            ": nobody reads or writes: entries on 2 of 3 nodes, but 2 nodes must name the same holder",
        ),
        (
            vec![reads("ann"), silent("h:3"), silent("h:3")],
            ": the readers and the writer are unknown, 1 of 3 nodes answered and 2 are needed",
        ),
        (
            vec![reads("ann"), reads("ann"), silent("h:3")],
            " is held for reading by 1",
        ),
    ] {
        let text = seen(nodes).to_string();
        let first = text.lines().next().unwrap();
        assert_eq!(first.strip_prefix(r#""index""#), Some(verdict));
    }
}

#[test]
fn many_readers_and_writers_are_cut_and_counted() {
    let names: Vec<String> = (0..30).map(|i| format!("r{i:02}")).collect();
    let readers: Vec<(&str, u64)> = names.iter().map(|name| (&**name, 500)).collect();
    let writers: Vec<&str> = names.iter().map(|name| &**name).collect();
    let many = |more| {
        let mut node = node("h:1", None, &readers, &writers);
        let rwlock = node.rwlock.as_mut().unwrap();
        rwlock.reading += more;
        rwlock.waiting += more;
        node
    };
    let all_named = seen([many(0), many(0), many(0)]);
    assert_eq!(
        (all_named.reading(), all_named.waiting_to_write()),
        (30, 30)
    );
    let some_named = seen([many(9), many(7), many(0)]);
    assert_eq!(some_named.readers().len(), 30);
    assert_eq!(some_named.reading(), 37, "what two of three count");
    assert_eq!(some_named.waiting_to_write(), 39);
    let text = some_named.to_string();
    assert!(text.starts_with("\"index\" is held for reading by 37; 39 wait to write\n"));
    assert!(
        text.contains("\nr19:1   500 ms     3 of 3 nodes\nand 17 more\n\nWAITS TO WRITE  ON\n")
    );
    assert!(text.ends_with(" nodes\nand 19 more"), "{text}");
}

#[test]
fn unused_locks_are_left_out_of_the_text() {
    let unused = || node("h:1", None, &[], &[]);
    let free = seen([unused(), unused(), unused()]).to_string();
    assert!(free.starts_with("\"index\" is free\n"), "{free}");
    assert!(!free.contains("READERS"), "{free}");

    let read = || node("h:1", None, &[("ann", 10)], &[]);
    let alone = seen([read(), read(), read()]).to_string();
    assert!(alone.starts_with("\"index\" is held for reading by 1\n"));
    assert!(!alone.contains("HOLDER"), "{alone}");

    let locked = || NodeInspection {
        holder: Some(holder("bob", 10)),
        ..read()
    };
    let both = seen([locked(), locked(), locked()]).to_string();
    assert!(both.starts_with("\"index\" is held on 3 of 3 nodes by bob:1"));
    assert!(
        both.contains("\n\n\"index\" is held for reading by 1\n"),
        "{both}"
    );
}

#[test]
fn readers_and_waiting_writers_print_their_labels() {
    let one = seen([node("h:1", None, &[("ann", 8_250)], &["eve"])]);
    assert_eq!(
        one.readers()[0].to_string(),
        "ann:1, for 8.2 s more unless it is renewed"
    );
    assert_eq!(one.waiting_writers()[0].to_string(), "eve:1");
    assert_eq!(one.waiting_writers()[0].owner(), None, "not one of ours");
}

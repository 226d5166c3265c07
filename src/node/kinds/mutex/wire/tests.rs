use std::time::Duration;

use redis_protocol::resp3::decode::complete::decode;

use super::*;
use crate::{
    base::{
        name::Name,
        owner::{Entry, Label},
    },
    node::{
        Command,
        mutex::cases::{acquires, inspect},
        request::{Target, Waiting},
        wire::writer::tests::read_back,
    },
};

fn request(verb: Verb) -> Command {
    Command::Request(Request {
        target: Target::mutex(Name::new("a:b").unwrap()),
        entry: ours(),
        verb,
    })
}

fn ours() -> Entry {
    Entry::new(uuid::Uuid::from_u128(1), &Label::new("host:1").unwrap())
}

fn acquire() -> Command {
    request(acquires(Duration::from_micros(10_001), 0))
}

fn decoded(command: &Command, reply: &str, hide: Hide<'_>) -> Option<Answer> {
    let (frame, _) = decode(reply.as_bytes()).unwrap().unwrap();
    command.decode(&[frame], hide)
}

fn answered(reply: &str) -> Option<Answer> {
    decoded(&acquire(), reply, &|text| text)
}

#[test]
fn a_command_is_a_script_with_its_keys() {
    let mut writer = Writer::new();
    let entry = ours();
    acquire().encode(&mut writer, &Keys::new("q"));
    let text = String::from_utf8(writer.into_bytes()).unwrap();
    // The call announces one more word, which is the guard.
    let bytes = format!("{text}$5\r\nguard\r\n").into_bytes();
    let wanted = [
        "EVALSHA",
        BATCH.sha(),
        "5",
        "q:open",
        "q:waiting",
        "q:@mutex:a:b",
        "q:c0",
        "q:c1",
        "A",
        entry.as_str(),
        "11",
        "0",
        "guard",
    ];
    assert_eq!(read_back(bytes), [wanted]);
}

#[test]
fn one_number_is_a_grant_and_three_answers_are_a_refusal() {
    let held = |remaining, counter| {
        Some(Answer::Held {
            which: None,
            remaining,
            counter,
            holder: None,
            ticket: 0,
        })
    };
    assert_eq!(
        answered(":9007199254740991\r\n"),
        Some(Answer::Granted((1 << 53) - 1))
    );
    let left = Some(Duration::from_millis(5));
    let refused = |left| answered(&format!("*3\r\n:{left}\r\n:7\r\n_\r\n"));
    assert_eq!(refused(5), held(left, 7));
    assert_eq!(refused(0), held(Some(Duration::ZERO), 7));
    assert_eq!(refused(-1), held(None, 7));
}

fn place() -> Place {
    Place {
        seq: 3,
        ticket: 1 << 50,
        only_last: false,
        term: Duration::from_micros(1_000_001),
        lock_delay: Duration::ZERO,
        life: Duration::from_secs(30),
        claim: Duration::from_millis(50),
        channel: "q:wake:1".into(),
    }
}

fn join() -> Command {
    request(Verb::Acquire {
        ttl: Duration::from_secs(10),
        floor: 7,
        wait: Waiting::Queue(place()),
    })
}

fn give_back() -> Command {
    request(Verb::Yield {
        floor: 8,
        wait: Waiting::Queue(place()),
    })
}

#[test]
fn a_place_travels_as_a_batch_of_one() {
    let sent = |command: Command| {
        let mut writer = Writer::new();
        command.encode(&mut writer, &Keys::new("q"));
        let mut bytes = writer.into_bytes();
        bytes.extend_from_slice(b"$5\r\nguard\r\n");
        read_back(bytes).remove(0).join(" ")
    };
    let entry = ours();
    let entry = entry.as_str();
    let place = "1125899906842624 1001 0 30000 50 q:wake:1 guard";
    let (sha, keys) = (BATCH.sha(), "5 q:open q:waiting q:@mutex:a:b q:c0 q:c1");
    let wanted = format!("EVALSHA {sha} {keys} J {entry} 10000 7 3 {place}");
    assert_eq!(sent(join()), wanted);
    let wanted = format!("EVALSHA {sha} {keys} Y {entry} 8 3 {place}");
    assert_eq!(sent(give_back()), wanted);
}

#[test]
fn a_raise_names_the_grant_that_it_is_for() {
    for (seq, wanted) in [(0, String::new()), (12, " 12".to_owned())] {
        let raise = request(Verb::Raise { seq, token: 5 });
        let wanted = format!("{}{wanted}", ours().as_str());
        let mut alone = Writer::new();
        raise.encode(&mut alone, &Keys::new("q"));
        let mut batch = Writer::new();
        let twice = [&raise, &raise].into_iter().filter_map(Command::rider);
        batch::encode(twice, &mut batch, &Keys::new("q"));
        for (writer, times) in [(alone, 1), (batch, 2)] {
            let mut bytes = writer.into_bytes();
            bytes.extend_from_slice(b"$5\r\nguard\r\n");
            let words = read_back(bytes).remove(0);
            let said = words.iter().filter(|word| **word == wanted).count();
            assert_eq!(said, times, "{words:?}");
        }
    }
}

#[test]
fn a_join_is_answered_by_two_or_by_four_or_by_five() {
    let answered = |reply: &str| decoded(&join(), reply, &|text| text);
    let (counter, seq) = (9, 3);
    assert_eq!(
        answered("*2\r\n:9\r\n:3\r\n"),
        Some(Answer::Taken { counter, seq })
    );
    let entry = ours();
    let text = format!("{} 3 77", entry.as_str());
    let in_line = |text: &str, left: i64, reserved| {
        let text = match text {
            "" => "_\r\n".to_owned(),
            text => format!("${}\r\n{text}\r\n", text.len()),
        };
        answered(&format!("*4\r\n:2\r\n:{left}\r\n{text}:{reserved}\r\n"))
    };
    let of = |remaining, ticket, holder, is_reserved| {
        Some(Answer::InLine {
            rank: 2,
            ahead: Ahead {
                remaining,
                ticket,
                holder,
                is_reserved,
            },
        })
    };
    let (left, holder) = (Some(Duration::from_millis(5)), Some(entry.text()));
    let reserved = of(left, 77, holder.clone(), true);
    assert_eq!(in_line(&text, 5, 1), reserved);
    assert_eq!(in_line(entry.as_str(), 5, 0), of(left, 0, holder, false));
    assert_eq!(in_line("somebody 3 77", -1, 0), of(None, 0, None, false));
    assert_eq!(in_line("", 0, 0), of(Some(Duration::ZERO), 0, None, false));
    let held = |ticket| Answer::Held {
        which: None,
        remaining: left,
        counter: 9,
        holder: Some(entry.text()),
        ticket,
    };
    for (last, ticket) in [(99, 99), (0, 77)] {
        let text = format!("${}\r\n{text}\r\n", text.len());
        let reply = answered(&format!("*5\r\n:5\r\n:9\r\n{text}:{last}\r\n:1\r\n"));
        assert_eq!(reply, Some(held(ticket)), "the greater of both");
    }
    for other in ["*1\r\n:9\r\n", ":1\r\n", "*3\r\n:5\r\n:7\r\n_\r\n"] {
        assert_eq!(answered(other), None, "{other:?}");
    }
    let yielded = |reply| decoded(&give_back(), reply, &|text| text);
    assert_eq!(yielded(":1\r\n"), Some(Answer::Yielded));
    assert_eq!(yielded(":0\r\n"), None);
}

#[test]
fn a_refusal_tells_the_later_of_the_holders_and_the_last_ticket() {
    let entry = ours();
    let ticket = |text: &str, last: &str| {
        let count = 3 + usize::from(!last.is_empty());
        let reply = format!(
            "*{count}\r\n:5\r\n:7\r\n${}\r\n{text}\r\n{last}",
            text.len()
        );
        match answered(&reply) {
            Some(Answer::Held { holder, ticket, .. }) => (holder.is_some(), ticket),
            other => panic!("{other:?}"),
        }
    };
    let text = format!("{} 3 77", entry.as_str());
    assert_eq!(ticket(&text, ""), (true, 77));
    assert_eq!(ticket(&text, ":76\r\n"), (true, 77));
    assert_eq!(ticket(&text, ":78\r\n"), (true, 78));
    assert_eq!(ticket(entry.as_str(), ":78\r\n"), (true, 78));
    for other in [" 3", " x 77", " 3 77 ", " 3 -1", " 3 77 4"] {
        let text = format!("{}{other}", entry.as_str());
        assert_eq!(ticket(&text, ""), (false, 0), "{other:?}");
    }
}

#[test]
fn an_inspection_lists_waiters_and_their_waiting_times() {
    let inspect = Command::from(inspect("a"));
    let entry = ours();
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let holder = bulk(&format!("{} 3 77", entry.as_str()));
    let (first, other) = (bulk(entry.as_str()), bulk("web3.acme"));
    let reply = format!(
        "*9\r\n{holder}:5\r\n:7\r\n:3000000\r\n:120\r\n{first}:1000000\r\n{other}:3000001\r\n"
    );
    let inspected = decoded(&inspect, &reply, &|text| {
        if text.contains("web3") { "***" } else { text }
    });
    let wanted = Answer::InspectedMutex(Box::new(MutexInspection {
        holder: Some((entry.as_str().to_owned(), Some(Duration::from_millis(5)))),
        counter: 7,
        line: vec![
            (entry.as_str().to_owned(), Duration::from_secs(2)),
            ("***".to_owned(), Duration::ZERO),
        ],
        waiting: 120,
    }));
    assert_eq!(inspected, Some(wanted));
}

#[test]
fn a_refusal_names_a_holder_only_if_it_is_a_valid_entry() {
    let holder = |entry: &str| {
        let reply = format!("*3\r\n:5\r\n:7\r\n${}\r\n{entry}\r\n", entry.len());
        match answered(&reply) {
            Some(Answer::Held { holder, .. }) => holder,
            other => panic!("{other:?}"),
        }
    };
    let ours = Entry::new(uuid::Uuid::from_u128(7), &Label::new("web-3:77").unwrap());
    assert_eq!(holder(ours.as_str()).as_deref(), Some(ours.as_str()));
    let longer = format!("{}\x1b", ours.as_str());
    for other in ["", "rslock's 20 bytes", "@web", &longer] {
        assert_eq!(holder(other), None, "{other:?}");
    }
}

#[test]
fn secrets_are_hidden_except_in_a_holders_entry() {
    let inspect = Command::from(inspect("a"));
    let shown = |entry: &str| {
        let reply = format!(
            "*5\r\n${}\r\n{entry}\r\n:5\r\n:7\r\n:9\r\n:0\r\n",
            entry.len()
        );
        match decoded(&inspect, &reply, &|text| {
            if text.contains("web3.acme") {
                "***"
            } else {
                text
            }
        }) {
            Some(Answer::InspectedMutex(it)) => it.holder.unwrap().0,
            other => panic!("{other:?}"),
        }
    };
    let ours = Entry::new(uuid::Uuid::from_u128(7), &Label::new("web3.acme").unwrap());
    assert_eq!(shown(ours.as_str()), ours.as_str());
    assert_eq!(shown("@web3.acme"), "***");
    let longer = shown(&format!("{} and", ours.as_str()));
    assert_eq!(longer, "***");
}

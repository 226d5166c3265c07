use std::time::Duration;

use super::*;
use crate::{
    base::rules::Rules,
    node::{
        admission::{Mode, Terms, cases},
        kinds::moment::Writes,
    },
};

const TERMS: Terms = Terms {
    max_ttl: Duration::from_secs(30),
    margin: Duration::from_secs(5),
};
const Z: u64 = 35_300;
const T: u64 = 1_760_000_000_000_500;

fn hello() -> Handshake {
    Handshake {
        terms: TERMS,
        ..cases::hello()
    }
}

/// The handshake of a client that has read this record.
fn knowing(record: &BootRecord, witnessed: u64) -> Handshake {
    Handshake {
        known: Some((record.run.clone(), record.id.clone())),
        witnessed,
        ..hello()
    }
}

struct Node {
    memory: Memory,
    at: Moment<'static>,
}

impl Node {
    fn new(rules: Rules) -> Self {
        let at = Moment {
            time: T,
            guard: "guard",
            rules,
            admitted: true,
            writes: Writes::All,
            wrote: Box::leak(Box::default()),
            air: Box::leak(Box::default()),
        };
        Self {
            memory: Memory::default(),
            at,
        }
    }

    /// A node that votes.
    fn voting(rules: Rules) -> Self {
        let mut node = Self::new(rules);
        let (record, _) = node.meet(hello());
        let admit = Admit {
            masters: 3,
            list: record.list,
            run: record.run,
            id: record.id,
            terms: TERMS,
            witnessed: Z,
            mode: Mode::New,
        };
        let admitted = node.ask(&Command::Admit(admit));
        assert_eq!(admitted, Ok(Reply::Admitted(true)));
        node
    }

    fn ask(&mut self, command: &Command) -> Result<Reply, Fault> {
        let (server, counters) = (Identity::master("run"), Counters::default());
        self.at.wrote.set(false);
        self.memory.apply(command, &server, &counters, self.at)
    }

    /// The record after a handshake, and true if `open` stands.
    fn meet(&mut self, hello: Handshake) -> (BootRecord, bool) {
        match self.ask(&Command::Handshake(hello)) {
            Ok(Reply::Met(meeting)) => (meeting.stored.record().unwrap().clone(), meeting.open),
            other => panic!("{other:?}"),
        }
    }

    #[cfg(feature = "test-util")]
    fn later(&mut self, ms: u64) -> &mut Self {
        self.at.time = T + ms * 1000;
        self
    }
}

#[test]
fn w_is_written_when_it_has_grown_by_a_hundredth() {
    for (x, written) in [(35_652, Z), (35_653, 35_653)] {
        let node = &mut Node::voting(Rules::ALL);
        let (record, _) = node.meet(hello());
        let (record, open) = node.meet(knowing(&record, x));
        assert_eq!((record.witnessed, open), (x, true));
        assert_eq!(node.memory.record().unwrap().witnessed, written);
    }
}

#[test]
fn a_full_server_is_closed_and_not_opened() {
    let node = &mut Node::voting(Rules::ALL);
    let (record, _) = node.meet(hello());
    let gone = BootRecord {
        run: "other/00000000/-1".into(),
        ..record
    };
    node.memory.set_boot(Some(gone.to_string()));
    node.at.writes = Writes::Small;
    // A server does not stop a script after its first write, and DEL is a write.
    assert_eq!(node.meet(hello()).0.witnessed, 0);
    assert_eq!(node.memory.open(), None);
    node.memory.set_boot(Some(gone.to_string()));
    let met = node.ask(&Command::Handshake(hello()));
    assert!(matches!(met, Err(Fault::Error(text)) if text.starts_with("OOM")));
    assert_eq!(node.memory.boot(), Some(&*gone.to_string()));
}

/// The effect of each trap of §10 when its rule is off.
#[cfg(feature = "test-util")]
mod without {
    use super::*;

    #[test]
    fn witnessed_by_clients() {
        let node = &mut Node::new(Rules::without(Rule::WitnessedByClients));
        node.meet(hello());
        let (_, open) = node.later(Z - 1).meet(hello());
        assert!(!open);
        let (record, open) = node.later(Z).meet(hello());
        assert_eq!((record.witnessed, open), (Z, true), "its own clock went on");
    }

    #[test]
    fn greater_w() {
        let node = &mut Node::voting(Rules::without(Rule::GreaterW));
        let (record, _) = node.meet(hello());
        let (answered, _) = node.meet(knowing(&record, Z + 300));
        assert_eq!(answered.witnessed, Z, "as it is stored");
        let (answered, _) = node.meet(knowing(&record, Z + 400));
        assert_eq!(answered.witnessed, Z + 400);
    }

    #[test]
    fn margin_in_record() {
        let node = &mut Node::new(Rules::without(Rule::MarginInRecord));
        let (record, _) = node.meet(hello());
        let terms = Terms {
            margin: Duration::ZERO,
            ..TERMS
        };
        let less = Handshake {
            terms,
            ..knowing(&record, 30_300)
        };
        assert!(node.meet(less).1, "a client without M opens it");
    }

    #[test]
    fn own_guard() {
        let node = &mut Node::new(Rules::without(Rule::OwnGuard));
        let (record, _) = node.meet(hello());
        node.meet(knowing(&record, Z));
        assert_eq!(node.memory.open(), Some("30000 3 3 word 5000 "), "no id");
    }
}

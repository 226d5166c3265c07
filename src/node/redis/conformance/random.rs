//! Random sequences, answered alike by memory and servers.

use std::cell::RefCell;

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;

/// All three answer the same, whatever is asked in whatever order; and the same stands there.
#[test]
fn random_sequences_are_answered_alike() {
    let seeds = match std::env::var("QUORATE_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..=4).collect(),
    };
    let mut peers = peers();
    for seed in seeds {
        let mut chance = Chance {
            rng: StdRng::seed_from_u64(seed),
            floor: wall_us(),
            guard: GUARD.into(),
        };
        // Each peer has a run of its own: what each client last read of it.
        let known: Vec<_> = peers.iter().map(|_| Known::default()).collect();
        for peer in &mut peers {
            peer.set_out_of_memory(false);
            peer.flush();
            peer.admit();
        }
        for step in 0..4000 {
            let ask = chance.ask();
            let (mut answers, mut stand) = (Vec::new(), Vec::new());
            for (peer, known) in peers.iter_mut().zip(&known) {
                answers.push(ask.of(&mut **peer, known));
                stand.push(peer.stands());
            }
            if let Ask::Nap(..) = ask {
                sleep(Duration::from_millis(30));
            }
            if let Ok(Reply::Admission(admission::Reply::Met(meeting))) = &answers[0] {
                let record = meeting.stored.record();
                chance.guard = record.map_or(GUARD.into(), |r| r.guard(Rules::ALL));
            }
            for (answer, stands) in answers.iter().zip(&stand).skip(1) {
                assert!(
                    alike(&answers[0], answer),
                    "QUORATE_SEED={seed}, step {step}: {ask:?} is answered {answers:#?}"
                );
                assert_eq!(
                    &stand[0], stands,
                    "QUORATE_SEED={seed}, step {step}: after {ask:?}"
                );
            }
        }
    }
}

/// Run and id as each of the clients last read them.
type Known = RefCell<[Option<(String, String)>; 3]>;

#[derive(Debug)]
enum Ask {
    Command(Command, String),
    /// An entry that is over after the step.
    Nap(Command),
    /// A handshake of this client: who knows what it read last, or nothing.
    Hello(Handshake, usize, bool),
    /// An ADMIT of the record that this client read last.
    Admit(Admit, usize),
    /// Somebody wrote, or deleted, a key of the admission.
    Put(Key, Option<String>),
    Flush,
    Full(bool),
    /// The current counters are now so old.
    Age(Duration),
}

impl Ask {
    fn of(&self, peer: &mut dyn Peer, known: &Known) -> Answer {
        let mut done = |act: &dyn Fn(&mut dyn Peer)| {
            act(&mut *peer);
            Ok(Reply::Server(server::Reply::Loaded))
        };
        match self {
            Self::Command(command, guard) => peer.ask_with(command, guard),
            Self::Nap(command) => peer.ask(command),
            Self::Hello(hello, client, knows) => {
                let mut hello = hello.clone();
                hello.known = known.borrow()[*client].clone().filter(|_| *knows);
                let answer = peer.ask(&Command::Admission(admission::Command::Handshake(hello)));
                if let Ok(Reply::Admission(admission::Reply::Met(meeting))) = &answer {
                    let record = meeting.stored.record();
                    let read = record.map(|r| (r.run.clone(), r.id.clone()));
                    known.borrow_mut()[*client] = read;
                }
                answer
            }
            Self::Admit(admit, client) => {
                let (run, id) = known.borrow()[*client].clone().unwrap_or_default();
                peer.ask(&Command::Admission(admission::Command::Admit(Admit {
                    run,
                    id,
                    ..admit.clone()
                })))
            }
            Self::Put(key, text) => done(&|peer| {
                peer.set_out_of_memory(false);
                peer.put(*key, text.as_deref());
            }),
            Self::Flush => done(&|peer| peer.flush()),
            Self::Full(on) => done(&|peer| peer.set_out_of_memory(*on)),
            Self::Age(age) => done(&|peer| {
                peer.set_out_of_memory(false);
                peer.set_age(*age);
            }),
        }
    }
}

struct Chance {
    rng: StdRng,
    floor: u64,
    /// What `open` says where the node of the last handshake votes.
    guard: String,
}

impl Chance {
    fn up_to(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.up_to(of.len() as u64) as usize]
    }

    fn ask(&mut self) -> Ask {
        let n = self.one(&["a", "b", "c:d", "_"]);
        let owner = u128::from(self.up_to(3));
        let ttl = secs(self.one(&[5, 10, 15, 20]));
        let guard = match self.up_to(20) {
            0 => "2 5 word 20000 5000 nonce".to_owned(),
            _ => self.guard.clone(),
        };
        let floor = match self.up_to(4) {
            0 => 0,
            1 => self.up_to(120),
            2 => self.floor,
            _ => {
                self.floor += self.up_to(1000);
                self.floor
            }
        };
        let command = match self.up_to(1000) {
            0..200 => acquire(n, owner, ttl, floor),
            200..300 => raise(n, owner, floor + self.up_to(3)),
            300..400 => extend(n, owner, ttl),
            400..500 => release(n, owner),
            500..560 => inspect(n),
            560..580 => evict(n),
            580..600 => Command::Admission(admission::Command::Survey),
            600..605 => return Ask::Nap(acquire(n, owner, Duration::from_millis(5), floor)),
            605..620 => return Ask::Full(true),
            620..650 => return Ask::Full(false),
            650..652 => return Ask::Flush,
            652..657 => return Ask::Age(DAY * self.one(&[6, 8])),
            657..690 => return Ask::Put(self.one(&[Key::Boot, Key::Open]), None),
            690..730 => return Ask::Put(Key::Boot, Some(self.boot())),
            730..740 => return Ask::Put(Key::Open, Some(self.guard.clone())),
            740..790 => return Ask::Admit(self.admit(), self.client()),
            _ => return Ask::Hello(self.hello(), self.client(), self.up_to(4) > 0),
        };
        Ask::Command(command, guard)
    }

    fn client(&mut self) -> usize {
        self.up_to(3) as usize
    }

    fn masters(&mut self) -> u64 {
        self.one(&[3, 3, 3, 3, 3, 3, 5])
    }

    fn list(&mut self) -> &'static str {
        self.one(&["word", "word", "word", "word", "word", "word", "other"])
    }

    fn terms(&mut self) -> Terms {
        Terms {
            max_ttl: secs(self.one(&[5, 20, 20, 20, 20, 40, 86_400])),
            margin: secs(self.one(&[1, 5, 5, 5, 5, 10])),
        }
    }

    /// About Z of the usual terms, about 27 h, or anything.
    fn w(&mut self) -> u64 {
        match self.up_to(8) {
            0 => self.up_to(Z),
            1 => self.one(&[0, Z - 1, Z, Z + 1]),
            2 => 97_200_000 + self.up_to(3) - 1,
            3 => self.up_to(300_000_000),
            // Often less than 1 % more than before.
            _ => 60_000 + self.up_to(1200),
        }
    }

    fn hello(&mut self) -> Handshake {
        Handshake {
            masters: self.masters(),
            list: self.list().into(),
            terms: self.terms(),
            vouch: self.one(&[Vouch::Stranger, Vouch::Voter, Vouch::Majority]),
            used: self.up_to(8) == 0,
            known: None,
            witnessed: self.w(),
            nonce: format!("nonce{}", self.up_to(1_000_000)),
        }
    }

    fn admit(&mut self) -> Admit {
        Admit {
            masters: self.masters(),
            list: self.list().into(),
            run: String::new(),
            id: String::new(),
            terms: self.terms(),
            witnessed: self.w(),
            mode: self.one(&[Mode::New, Mode::Raise, Mode::Forced]),
        }
    }

    /// What somebody may have left in `boot`.
    fn boot(&mut self) -> String {
        let run = self.one(&[
            "RUN/00000000/-1",
            "RUN/00000000/-1",
            "RUN/12345678/7",
            "eeee/00000000/-1",
        ]);
        match self.up_to(8) {
            0 => self
                .one(&["", "garbage", "garbage RUN", "2", "2 3 word"])
                .into(),
            1 => format!(
                "{} 3 {run} id 20000 1000 500",
                self.one(&["1", "3", "0", "77"])
            ),
            2 => format!("2 3 word 86400001 5000 {run} id 1 1 90000"),
            _ => BootRecord {
                masters: self.masters(),
                list: self.list().into(),
                terms: self.terms(),
                run: run.into(),
                id: format!("id{}", self.up_to(1000)),
                vouched: self.up_to(2) == 0,
                used: self.up_to(4) == 0,
                witnessed: self.w(),
            }
            .to_string(),
        }
    }
}

/// The same but for the clock, the run, and the words of an error.
fn alike(a: &Answer, b: &Answer) -> bool {
    let near = |a: Option<Duration>, b: Option<Duration>| match (a, b) {
        (Some(a), Some(b)) => a.abs_diff(b) < secs(2),
        (a, b) => a == b,
    };
    match (a, b) {
        (Err(Fault::Error(a)), Err(Fault::Error(b))) => a.split(' ').next() == b.split(' ').next(),
        (
            Ok(Reply::Mutex(mutex::Reply::Held {
                remaining: r1,
                counter: c1,
                holder: h1,
            })),
            Ok(Reply::Mutex(mutex::Reply::Held {
                remaining: r2,
                counter: c2,
                holder: h2,
            })),
        ) => near(*r1, *r2) && c1 == c2 && h1 == h2,
        (
            Ok(Reply::Mutex(mutex::Reply::Inspected {
                holder: Some((h1, r1)),
                counter: c1,
            })),
            Ok(Reply::Mutex(mutex::Reply::Inspected {
                holder: Some((h2, r2)),
                counter: c2,
            })),
        ) => h1 == h2 && near(*r1, *r2) && c1 == c2,
        // Each names any of its locks.
        (
            Ok(Reply::Admission(admission::Reply::Surveyed { used: u1, lock: l1 })),
            Ok(Reply::Admission(admission::Reply::Surveyed { used: u2, lock: l2 })),
        ) => u1 == u2 && l1.is_some() == l2.is_some(),
        (
            Ok(Reply::Admission(admission::Reply::Met(a))),
            Ok(Reply::Admission(admission::Reply::Met(b))),
        ) => {
            let met = |m: &Meeting| {
                let run_id = m.server.run.split('/').next().unwrap();
                let mut stored = m.stored.clone();
                if let Stored::Record(record) = &mut stored {
                    record.run = record.run.replace(run_id, "RUN");
                }
                (stored, m.open, m.server.role.clone())
            };
            met(a) == met(b)
        }
        (a, b) => a == b,
    }
}

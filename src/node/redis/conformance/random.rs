//! Random sequences, answered alike by memory and servers.

use std::cell::RefCell;

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;

/// All three answer the same, whatever is asked in whatever order.
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
        // Each peer has a run of its own: what it last said of it.
        let known: Vec<_> = peers.iter().map(|_| RefCell::new(None)).collect();
        for peer in &mut peers {
            peer.set_out_of_memory(false);
            peer.flush();
            peer.admit();
        }
        for step in 0..4000 {
            let ask = chance.ask();
            let mut answers = Vec::new();
            for (peer, known) in peers.iter_mut().zip(&known) {
                answers.push(ask.of(&mut **peer, known));
            }
            if let Ask::Nap(..) = ask {
                sleep(Duration::from_millis(30));
            }
            if let Ok(Reply::Met(meeting)) = &answers[0] {
                chance.guard = meeting
                    .record
                    .as_ref()
                    .map_or(GUARD.into(), BootRecord::guard);
            }
            for answer in &answers[1..] {
                assert!(
                    alike(&answers[0], answer),
                    "QUORATE_SEED={seed}, step {step}: {ask:?} is answered {answers:#?}"
                );
            }
        }
    }
}

#[derive(Debug)]
enum Ask {
    Command(Command, String),
    /// An entry that is over after the step.
    Nap(Command),
    /// A handshake of one who knows the peer's record, or not.
    Hello(Handshake, bool),
    Admit(Duration),
    Flush,
    Full(bool),
    /// The current counters are now so old.
    Age(Duration),
}

impl Ask {
    fn of(&self, peer: &mut dyn Peer, known: &RefCell<Option<(String, String)>>) -> Answer {
        match self {
            Self::Command(command, guard) => peer.ask_with(command, guard),
            Self::Nap(command) => peer.ask(command),
            Self::Hello(hello, knows) => {
                let mut hello = hello.clone();
                hello.known = known.borrow().clone().filter(|_| *knows);
                let answer = peer.ask(&Command::Handshake(hello));
                if let Ok(Reply::Met(meeting)) = &answer {
                    let record = meeting.record.as_ref();
                    *known.borrow_mut() = record.map(|r| (r.run.clone(), r.id.clone()));
                }
                answer
            }
            Self::Admit(max_ttl) => {
                let (run, id) = known.borrow().clone().unwrap_or_default();
                peer.ask(&Command::Admit {
                    run,
                    id,
                    max_ttl: *max_ttl,
                    witnessed: 60_000,
                })
            }
            Self::Flush => {
                peer.flush();
                Ok(Reply::Loaded)
            }
            Self::Full(on) => {
                peer.set_out_of_memory(*on);
                Ok(Reply::Loaded)
            }
            Self::Age(age) => {
                peer.set_out_of_memory(false);
                peer.set_age(*age);
                Ok(Reply::Loaded)
            }
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
            0 => "1 5 20000".to_owned(),
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
            0..300 => acquire(n, owner, ttl, floor),
            300..450 => raise(n, owner, floor + self.up_to(3)),
            450..600 => extend(n, owner, ttl),
            600..750 => release(n, owner),
            750..850 => inspect(n),
            850..880 => evict(n),
            880..900 => Command::Survey,
            900..905 => return Ask::Nap(acquire(n, owner, Duration::from_millis(5), floor)),
            905..909 => return Ask::Full(true),
            909..930 => return Ask::Full(false),
            930..932 => return Ask::Flush,
            932..937 => return Ask::Age(DAY * self.one(&[6, 8])),
            937..945 => return Ask::Admit(secs(self.one(&[10, 20, 20, 20, 40]))),
            _ => {
                let hello = Handshake {
                    fleet: self.one(&[3, 3, 3, 3, 5]),
                    max_ttl: secs(self.one(&[5, 20, 20, 30])),
                    fleet_max_ttl: secs(self.one(&[0, 20, 20, 20, 20, 20, 20, 40])),
                    margin: MARGIN,
                    known: None,
                    witnessed: self.up_to(120_000),
                    nonce: format!("nonce{}", self.up_to(1000)),
                };
                return Ask::Hello(hello, self.up_to(4) > 0);
            }
        };
        Ask::Command(command, guard)
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
            Ok(Reply::Held {
                remaining: r1,
                counter: c1,
            }),
            Ok(Reply::Held {
                remaining: r2,
                counter: c2,
            }),
        ) => near(*r1, *r2) && c1 == c2,
        (
            Ok(Reply::Inspected {
                holder: Some((h1, r1)),
                counter: c1,
            }),
            Ok(Reply::Inspected {
                holder: Some((h2, r2)),
                counter: c2,
            }),
        ) => h1 == h2 && near(*r1, *r2) && c1 == c2,
        (Ok(Reply::Met(a)), Ok(Reply::Met(b))) => {
            let record = |m: &Meeting| {
                let record = m
                    .record
                    .clone()
                    .map(|r| (r.format, r.fleet, r.id, r.max_ttl, r.witnessed));
                (record, m.open, m.server.role.clone())
            };
            record(a) == record(b)
        }
        (a, b) => a == b,
    }
}

//! A node's admission: may this memory vote, and from when (protocol §2). Pure.
//!
//! A master that restarts without its memory would vote twice. So every memory carries a record of
//! how long it has been witnessed by clients, and votes only once that is longer than any lease
//! that it may have forgotten.

use std::{fmt, str::FromStr, time::Duration};

use crate::rules::{Rule, Rules};

/// The number of the format of what stands on the nodes.
pub(crate) const FORMAT: u32 = 1;

/// Z: for how long a memory must have been witnessed before it votes, in whole ms, rounded up.
pub(crate) fn quarantine(max_ttl: Duration, margin: Duration) -> u64 {
    let max_ttl = ms(max_ttl);
    max_ttl
        .saturating_add(max_ttl.div_ceil(100))
        .saturating_add(ms(margin))
}

/// In whole ms, rounded up: what a node is told of a duration is never less than what was meant.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// What `<prefix>:open` says while the node votes; the same bytes for every node of the fleet.
pub(crate) fn guard(fleet: usize, max_ttl: Duration) -> String {
    format!("{FORMAT} {fleet} {}", max_ttl.as_millis())
}

/// The record in `<prefix>:boot`: "format N run id max_ttl w since".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootRecord {
    /// The format of what stands on the node.
    pub format: u32,
    /// N: how many masters the fleet has.
    pub fleet: u64,
    /// Which process, and which memory of it: see [`Server::run`].
    pub run: String,
    /// The nonce of the client that made the record.
    pub id: String,
    /// The longest lease of the deployment.
    pub max_ttl: Duration,
    /// w: for how many ms this memory has been witnessed.
    pub witnessed: u64,
    /// The node's TIME of the first meeting, µs.
    pub since: u64,
}

impl BootRecord {
    /// What `open` says where a node of this record votes.
    pub(crate) fn guard(&self) -> String {
        let Self {
            format,
            fleet,
            max_ttl,
            ..
        } = self;
        format!("{format} {fleet} {}", max_ttl.as_millis())
    }

    /// Was this memory witnessed for long enough?
    pub(crate) fn votes(&self, margin: Duration) -> bool {
        self.witnessed >= quarantine(self.max_ttl, margin)
    }
}

impl fmt::Display for BootRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            format,
            fleet,
            run,
            id,
            max_ttl,
            witnessed,
            since,
        } = self;
        write!(
            f,
            "{format} {fleet} {run} {id} {} {witnessed} {since}",
            max_ttl.as_millis()
        )
    }
}

impl FromStr for BootRecord {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ');
        let mut next = || words.next().ok_or(());
        let format = next()?.parse().map_err(drop)?;
        if format != FORMAT {
            // What else another format says, nobody here knows; its number is enough to refuse it.
            let (run, id) = (String::new(), String::new());
            let max_ttl = Duration::ZERO;
            return Ok(Self {
                format,
                fleet: 0,
                run,
                id,
                max_ttl,
                witnessed: 0,
                since: 0,
            });
        }
        let record = Self {
            format,
            fleet: next()?.parse().map_err(drop)?,
            run: next()?.to_owned(),
            id: next()?.to_owned(),
            max_ttl: Duration::from_millis(next()?.parse().map_err(drop)?),
            witnessed: next()?.parse().map_err(drop)?,
            since: next()?.parse().map_err(drop)?,
        };
        words.next().is_none().then_some(record).ok_or(())
    }
}

/// What a client brings to a meeting. Both `max_ttl` are of whole ms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// N as this client counts it.
    pub fleet: u64,
    /// The longest lease this client asks for.
    pub max_ttl: Duration,
    /// The longest lease this client has read on any node.
    pub fleet_max_ttl: Duration,
    /// M, the margin of the quarantine.
    pub margin: Duration,
    /// Run and id as this client last read them here.
    pub known: Option<(String, String)>,
    /// x: the w it then read, and what its own clock counted since, in ms.
    pub witnessed: u64,
    /// A fresh id, should this be the first meeting.
    pub nonce: String,
}

/// What the server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// `run_id`, the first 8 of `master_replid2`, and `second_repl_offset`: a master that was a
    /// replica meanwhile keeps its `run_id`, but not its leases.
    pub run: String,
    /// `master`, or else.
    pub role: String,
    /// `standalone`, or else.
    pub mode: String,
    /// `maxmemory_policy`.
    pub eviction: String,
    /// `valkey_version`, or else `redis_version`.
    pub version: String,
    /// TIME in µs.
    pub time: u64,
}

/// The outcome of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// What the server says of itself.
    pub server: Server,
    /// The record as it now stands, where there is one.
    pub record: Option<BootRecord>,
    /// Whether `open` now stands, so that guarded commands are obeyed.
    pub open: bool,
}

/// Builds `run` out of the fields of INFO. A `replid2` of zeros is the same run: the server has
/// only freed its backlog.
pub(crate) fn run(run_id: &str, replid2: &str, second_offset: &str) -> String {
    let replid2 = replid2.get(..8).unwrap_or(replid2);
    format!("{run_id}/{replid2}/{second_offset}")
}

/// Whether two runs are one memory: equal, or of one process whose `replid2` is now zeros.
pub(crate) fn same_run(stored: &str, now: &str) -> bool {
    if stored == now {
        return true;
    }
    match (stored.split_once('/'), now.split_once('/')) {
        (Some((a, _)), Some((b, rest))) => a == b && rest == "00000000/-1",
        _ => false,
    }
}

/// Whether client and node can work together now that they met. Where not, nothing is written.
pub(crate) fn agree(record: &BootRecord, server: &Server, hello: &Handshake, rules: Rules) -> bool {
    server.role == "master"
        && server.mode == "standalone"
        && record.format == FORMAT
        && (record.fleet == hello.fleet || !rules.hold(Rule::SameFleet))
        && record.max_ttl >= hello.max_ttl
}

/// What the handshake does to the record: the executable meaning of `lua/handshake.lua`. The record
/// comes back as it was where client and node do not [`agree`].
pub(crate) fn meet(
    stored: Option<&BootRecord>,
    server: &Server,
    hello: &Handshake,
    rules: Rules,
) -> Option<BootRecord> {
    let fleet_max = hello.fleet_max_ttl;
    if server.role != "master" || server.mode != "standalone" {
        return stored.cloned();
    }
    if let Some(old) = stored {
        let other_fleet = old.fleet != hello.fleet && rules.hold(Rule::SameFleet);
        if old.format != FORMAT || other_fleet {
            return Some(old.clone());
        }
        let same = same_run(&old.run, &server.run) || !rules.hold(Rule::RunAndRecord);
        if same {
            return Some(met_again(old, server, hello, rules));
        }
    }
    Some(BootRecord {
        format: FORMAT,
        fleet: hello.fleet,
        run: server.run.clone(),
        id: hello.nonce.clone(),
        max_ttl: hello.max_ttl.max(fleet_max),
        witnessed: 0,
        since: server.time,
    })
}

fn met_again(old: &BootRecord, server: &Server, hello: &Handshake, rules: Rules) -> BootRecord {
    let max_ttl = old.max_ttl.max(hello.fleet_max_ttl);
    if hello.max_ttl > max_ttl {
        return old.clone();
    }
    let known = hello
        .known
        .as_ref()
        .is_some_and(|(run, id)| *run == old.run && *id == old.id);
    let unripe = old.witnessed < quarantine(max_ttl, hello.margin);
    let mut witnessed = old.witnessed;
    if known && unripe {
        witnessed = witnessed.max(hello.witnessed);
    }
    if !rules.hold(Rule::WitnessedByClients) {
        witnessed = witnessed.max(server.time.saturating_sub(old.since) / 1000);
    }
    BootRecord {
        run: server.run.clone(),
        fleet: hello.fleet,
        max_ttl,
        witnessed,
        ..old.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_TTL: Duration = Duration::from_secs(30);
    const MARGIN: Duration = Duration::from_secs(5);
    const Z: u64 = 35_300;

    fn server() -> Server {
        Server {
            run: run("abc", "0000000000000000", "-1"),
            role: "master".into(),
            mode: "standalone".into(),
            eviction: "noeviction".into(),
            version: "7.0.15".into(),
            time: 1_000_000_000,
        }
    }

    fn hello() -> Handshake {
        Handshake {
            fleet: 3,
            max_ttl: MAX_TTL,
            fleet_max_ttl: Duration::ZERO,
            margin: MARGIN,
            known: None,
            witnessed: 0,
            nonce: "mine".into(),
        }
    }

    fn record() -> BootRecord {
        BootRecord {
            format: FORMAT,
            fleet: 3,
            run: server().run,
            id: "theirs".into(),
            max_ttl: MAX_TTL,
            witnessed: 1_000,
            since: 500_000_000,
        }
    }

    fn knowing(witnessed: u64) -> Handshake {
        Handshake {
            known: Some((server().run, "theirs".into())),
            witnessed,
            ..hello()
        }
    }

    fn met(stored: &BootRecord, hello: &Handshake) -> BootRecord {
        meet(Some(stored), &server(), hello, Rules::ALL).unwrap()
    }

    #[test]
    fn the_quarantine_is_z_rounded_up() {
        assert_eq!(quarantine(MAX_TTL, MARGIN), Z);
        assert_eq!(quarantine(Duration::from_millis(1), Duration::ZERO), 2);
        assert_eq!(
            quarantine(Duration::from_micros(1), Duration::from_nanos(1)),
            3
        );
        assert_eq!(quarantine(Duration::MAX, Duration::MAX), u64::MAX);
        assert!(
            !BootRecord {
                witnessed: Z - 1,
                ..record()
            }
            .votes(MARGIN)
        );
        assert!(
            BootRecord {
                witnessed: Z,
                ..record()
            }
            .votes(MARGIN)
        );
    }

    #[test]
    fn a_record_reads_as_it_was_written() {
        let text = "1 3 abc/00000000/-1 theirs 30000 1000 500000000";
        assert_eq!(record().to_string(), text);
        assert_eq!(text.parse(), Ok(record()));
        assert_eq!(record().guard(), guard(3, MAX_TTL));
        for bad in [
            "",
            "x",
            "1",
            "1 3",
            "1 3 r i 30000 1000",
            "1 3 r i 30000 1000 5 6",
            "1 3 r i -1 0 0",
        ] {
            assert_eq!(bad.parse::<BootRecord>(), Err(()), "{bad:?}");
        }
        assert_eq!("2 anything".parse::<BootRecord>().unwrap().format, 2);
    }

    #[test]
    fn a_run_is_the_process_and_what_it_was_meanwhile() {
        let master = run("abc", &"0".repeat(40), "-1");
        assert_eq!(master, "abc/00000000/-1");
        let failback = run("abc", "1234567890", "55");
        assert_eq!(failback, "abc/12345678/55");
        assert!(same_run(&master, &master));
        assert!(!same_run(&master, &failback), "a replica meanwhile");
        assert!(same_run(&failback, &master), "the backlog was freed");
        assert!(!same_run(&failback, &run("abc", "1234567890", "56")));
        assert!(!same_run(&failback, &run("abc", "0000000012", "55")));
        assert!(
            !same_run(&failback, &run("xyz", "00000000", "-1")),
            "another process"
        );
        assert!(!same_run("abc", "abc/00000000/-1"));
    }

    #[test]
    fn a_first_meeting_witnesses_nothing() {
        let longer = Handshake {
            fleet_max_ttl: Duration::from_secs(60),
            ..knowing(90_000)
        };
        let first = meet(None, &server(), &longer, Rules::ALL).unwrap();
        assert_eq!(
            (&*first.id, first.witnessed, first.since),
            ("mine", 0, server().time)
        );
        assert_eq!(first.max_ttl, Duration::from_secs(60));
        let other = BootRecord {
            run: run("xyz", "00000000", "-1"),
            witnessed: Z,
            ..record()
        };
        let first = met(
            &other,
            &Handshake {
                known: Some((other.run.clone(), other.id.clone())),
                ..knowing(Z)
            },
        );
        assert_eq!(
            (&*first.id, first.witnessed, &first.run),
            ("mine", 0, &server().run)
        );
    }

    #[test]
    fn only_who_knows_run_and_record_is_a_witness() {
        assert_eq!(met(&record(), &knowing(2_000)).witnessed, 2_000);
        assert_eq!(met(&record(), &knowing(999)).witnessed, 1_000);
        assert_eq!(
            met(
                &record(),
                &Handshake {
                    known: None,
                    ..knowing(2_000)
                }
            ),
            record()
        );
        for known in [
            (server().run, "mine".to_owned()),
            ("xyz".to_owned(), "theirs".to_owned()),
        ] {
            let stranger = Handshake {
                known: Some(known),
                ..knowing(2_000)
            };
            assert_eq!(met(&record(), &stranger), record());
        }
    }

    #[test]
    fn w_grows_up_to_where_the_node_votes() {
        let ripe = BootRecord {
            witnessed: Z,
            ..record()
        };
        assert_eq!(met(&ripe, &knowing(90_000)), ripe);
        let unripe = BootRecord {
            witnessed: Z - 1,
            ..record()
        };
        assert_eq!(met(&unripe, &knowing(90_000)).witnessed, 90_000);
        // A longer max_ttl on another node: what was enough is not any more.
        let longer = Handshake {
            fleet_max_ttl: Duration::from_secs(60),
            ..knowing(40_000)
        };
        let grown = met(&ripe, &longer);
        assert_eq!(
            (grown.max_ttl, grown.witnessed),
            (Duration::from_secs(60), 40_000)
        );
        assert!(!grown.votes(MARGIN));
    }

    #[test]
    fn a_freed_backlog_keeps_the_record() {
        let stored = BootRecord {
            run: run("abc", "12345678", "55"),
            ..record()
        };
        let know = |run: String| Handshake {
            known: Some((run, "theirs".into())),
            ..knowing(2_000)
        };
        assert_eq!(
            met(&stored, &know(stored.run.clone())),
            BootRecord {
                witnessed: 2_000,
                ..record()
            }
        );
        assert_eq!(
            met(&stored, &know(server().run)),
            record(),
            "not yet read by this client"
        );
    }

    #[test]
    fn who_disagrees_changes_nothing() {
        let refused = |stored: &BootRecord, server: &Server, hello: &Handshake| {
            let after = meet(Some(stored), server, hello, Rules::ALL).unwrap();
            assert_eq!(after, *stored);
            assert!(!agree(&after, server, hello, Rules::ALL));
        };
        let hello = knowing(90_000);
        refused(
            &record(),
            &Server {
                role: "slave".into(),
                ..server()
            },
            &hello,
        );
        refused(
            &record(),
            &Server {
                mode: "cluster".into(),
                ..server()
            },
            &hello,
        );
        refused(
            &BootRecord {
                format: FORMAT + 1,
                ..record()
            },
            &server(),
            &hello,
        );
        refused(
            &BootRecord {
                fleet: 5,
                ..record()
            },
            &server(),
            &hello,
        );
        let longer = Handshake {
            max_ttl: MAX_TTL + Duration::from_millis(1),
            ..hello.clone()
        };
        refused(&record(), &server(), &longer);
        // Of another N, though of a process that is gone: the fleet was resized; that takes an operator.
        refused(
            &BootRecord {
                fleet: 5,
                run: "xyz/0/0".into(),
                ..record()
            },
            &server(),
            &hello,
        );
        assert_eq!(
            meet(
                None,
                &Server {
                    role: "slave".into(),
                    ..server()
                },
                &hello,
                Rules::ALL
            ),
            None
        );

        let shorter = Handshake {
            max_ttl: Duration::from_secs(1),
            ..hello
        };
        assert!(agree(
            &met(&record(), &shorter),
            &server(),
            &shorter,
            Rules::ALL
        ));
        let learned = Handshake {
            fleet_max_ttl: longer.max_ttl,
            ..longer
        };
        assert!(agree(
            &met(&record(), &learned),
            &server(),
            &learned,
            Rules::ALL
        ));
    }

    /// What each trap of §10 does once its rule is off.
    #[cfg(feature = "test-util")]
    #[test]
    fn without_its_rule_each_trap_is_open() {
        let rules = Rules::without(Rule::RunAndRecord);
        let other = BootRecord {
            run: run("xyz", "00000000", "-1"),
            witnessed: Z,
            ..record()
        };
        let after = meet(Some(&other), &server(), &hello(), rules).unwrap();
        assert!(after.votes(MARGIN), "a restored record votes");

        let rules = Rules::without(Rule::WitnessedByClients);
        let after = meet(Some(&record()), &server(), &hello(), rules).unwrap();
        assert!(after.votes(MARGIN), "500 s passed by its own clock");

        let rules = Rules::without(Rule::SameFleet);
        let hello = Handshake {
            fleet: 5,
            ..hello()
        };
        let after = meet(Some(&record()), &server(), &hello, rules).unwrap();
        assert!(agree(&after, &server(), &hello, rules));
        assert_eq!(after.fleet, 5);
    }
}

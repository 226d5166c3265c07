//! Commands as the bytes that a server reads (RESP). They are the same for every node of a fleet.

use super::scripts::{self, Script};
use crate::{
    name::Name,
    node::{
        admission::{FORMAT, Handshake, ms},
        command::{Batch, Command},
    },
};

/// Stands before a name in the key of its lock and in the field of its counter. No prefix may hold
/// an `@`, so the keys of two deployments differ even where one's prefix begins with the other's.
const MUTEX: &[u8] = b"@mutex:";

/// The keys of a deployment.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    boot: Vec<u8>,
    open: Vec<u8>,
    time: Vec<u8>,
    current: Vec<u8>,
    previous: Vec<u8>,
    /// All of a lock's key but its name.
    lock: Vec<u8>,
    /// Matches the locks of every kind.
    locks: Vec<u8>,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        let key = |rest: &[u8]| [prefix.as_bytes(), b":", rest].concat();
        let mut locks = Vec::new();
        for &byte in prefix.as_bytes() {
            if matches!(byte, b'*' | b'?' | b'[' | b']' | b'^' | b'-' | b'\\') {
                locks.push(b'\\');
            }
            locks.push(byte);
        }
        locks.extend_from_slice(b":@*");
        Self {
            boot: key(b"boot"),
            open: key(b"open"),
            time: key(b"time"),
            current: key(b"c0"),
            previous: key(b"c1"),
            lock: key(MUTEX),
            locks,
        }
    }
}

/// How many replies of the server belong to this command.
pub(crate) fn answers(command: &Command) -> usize {
    match command {
        Command::LoadScripts => scripts::ALL.len(),
        _ => 1,
    }
}

/// The bytes of a batch.
pub(crate) fn batch(batch: &Batch, keys: &Keys) -> Vec<u8> {
    let mut wire = Wire(Vec::with_capacity(64 + batch.commands().len() * 512));
    for command in batch.commands() {
        encode(&mut wire, command, batch.guard(), keys);
    }
    wire.0
}

fn encode(wire: &mut Wire, command: &Command, guard: &str, keys: &Keys) {
    use Arg::{Number, Text};
    let open = Arg::Bytes(&keys.open);
    let boot = Arg::Bytes(&keys.boot);
    let time = Arg::Bytes(&keys.time);
    let current = Arg::Bytes(&keys.current);
    let previous = Arg::Bytes(&keys.previous);
    let lock = |name| Arg::Named(&keys.lock, name);
    let counter = |name| Arg::Named(MUTEX, name);
    match command {
        Command::Handshake(Handshake {
            fleet,
            max_ttl,
            fleet_max_ttl,
            margin,
            known,
            witnessed,
            nonce,
        }) => {
            let (run, id) = known.as_ref().map_or(("", ""), |(run, id)| (run, id));
            // By its source: it never depends on what the server has cached.
            wire.run(
                "EVAL",
                scripts::HANDSHAKE.source,
                &[boot, open, time],
                &[
                    Number(FORMAT.into()),
                    Number(*fleet),
                    Number(ms(*max_ttl)),
                    Number(ms(*fleet_max_ttl)),
                    Number(ms(*margin)),
                    Text(run),
                    Text(id),
                    Number(*witnessed),
                    Text(nonce),
                ],
            );
        }
        Command::Acquire {
            name,
            entry,
            ttl,
            floor,
        } => {
            let max_ttl = guard.rsplit(' ').next().unwrap_or("0");
            wire.call(
                &scripts::ACQUIRE,
                &[lock(name), open, time, current, previous],
                &[
                    Text(guard),
                    Text(max_ttl),
                    counter(name),
                    Text(entry.as_str()),
                    Number(ms(*ttl)),
                    Number(*floor),
                ],
            );
        }
        Command::Raise { name, entry, token } => wire.call(
            &scripts::RAISE,
            &[lock(name), open, current, previous],
            &[
                Text(guard),
                counter(name),
                Text(entry.as_str()),
                Number(*token),
            ],
        ),
        Command::Extend { name, entry, ttl } => wire.call(
            &scripts::EXTEND,
            &[lock(name), open],
            &[Text(guard), Text(entry.as_str()), Number(ms(*ttl))],
        ),
        Command::Release { name, entry } => {
            wire.call(&scripts::RELEASE, &[lock(name)], &[Text(entry.as_str())]);
        }
        Command::Inspect { name } => wire.call(
            &scripts::INSPECT,
            &[lock(name), open, current, previous],
            &[Text(guard), counter(name)],
        ),
        Command::Evict { name } => {
            wire.call(&scripts::EVICT, &[lock(name), open], &[Text(guard)]);
        }
        Command::Survey => wire.call(&scripts::SURVEY, &[], &[Arg::Bytes(&keys.locks)]),
        Command::Admit {
            run,
            id,
            max_ttl,
            witnessed,
        } => wire.call(
            &scripts::ADMIT,
            &[boot, open],
            &[
                Number(FORMAT.into()),
                Text(run),
                Text(id),
                Number(ms(*max_ttl)),
                Number(*witnessed),
            ],
        ),
        Command::Disconnect { client } => {
            wire.array(4);
            wire.put(Text("CLIENT"));
            wire.put(Text("KILL"));
            wire.put(Text("ID"));
            wire.put(Number(*client));
        }
        Command::LoadScripts => {
            for script in scripts::ALL {
                wire.array(3);
                wire.put(Text("SCRIPT"));
                wire.put(Text("LOAD"));
                wire.put(Text(script.source));
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Arg<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
    Named(&'a [u8], &'a Name),
    Number(u64),
}

struct Wire(Vec<u8>);

impl Wire {
    fn call(&mut self, script: &Script, keys: &[Arg<'_>], args: &[Arg<'_>]) {
        self.run("EVALSHA", script.sha(), keys, args);
    }

    fn run(&mut self, how: &str, script: &str, keys: &[Arg<'_>], args: &[Arg<'_>]) {
        self.array(3 + keys.len() + args.len());
        self.put(Arg::Text(how));
        self.put(Arg::Text(script));
        self.put(Arg::Number(keys.len() as u64));
        for arg in keys.iter().chain(args) {
            self.put(*arg);
        }
    }

    fn array(&mut self, items: usize) {
        self.line(b'*', items as u64);
    }

    fn put(&mut self, arg: Arg<'_>) {
        match arg {
            Arg::Text(text) => self.bulk(text.as_bytes(), b""),
            Arg::Bytes(bytes) => self.bulk(bytes, b""),
            Arg::Named(kind, name) => self.bulk(kind, name.as_str().as_bytes()),
            Arg::Number(n) => {
                self.line(b'$', u64::from(n.checked_ilog10().unwrap_or(0)) + 1);
                self.digits(n);
                self.0.extend_from_slice(b"\r\n");
            }
        }
    }

    fn bulk(&mut self, one: &[u8], two: &[u8]) {
        self.line(b'$', (one.len() + two.len()) as u64);
        self.0.extend_from_slice(one);
        self.0.extend_from_slice(two);
        self.0.extend_from_slice(b"\r\n");
    }

    fn line(&mut self, kind: u8, n: u64) {
        self.0.push(kind);
        self.digits(n);
        self.0.extend_from_slice(b"\r\n");
    }

    fn digits(&mut self, n: u64) {
        if n >= 10 {
            self.digits(n / 10);
        }
        self.0.push(b'0' + (n % 10) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::{Entry, Label};

    fn text(command: Command) -> String {
        let wire = batch(&Batch::one(command, &"1 3 30000".into()), &Keys::new("q"));
        String::from_utf8(wire).unwrap()
    }

    fn words(command: Command) -> Vec<String> {
        let text = text(command);
        let mut lines = text.split("\r\n");
        let count = lines
            .next()
            .unwrap()
            .strip_prefix('*')
            .unwrap()
            .parse()
            .unwrap();
        let mut words = Vec::new();
        for _ in 0..count {
            let length: usize = lines
                .next()
                .unwrap()
                .strip_prefix('$')
                .unwrap()
                .parse()
                .unwrap();
            words.push(lines.next().unwrap().to_owned());
            assert_eq!(words.last().unwrap().len(), length);
        }
        assert_eq!(lines.collect::<Vec<_>>(), [""]);
        words
    }

    #[test]
    fn a_command_is_a_script_with_its_keys() {
        let name = Name::new("a:b").unwrap();
        let entry = Entry::new(1, &Label::new("host:1").unwrap());
        let ttl = std::time::Duration::from_micros(10_001);
        let holder = entry.as_str().to_owned();
        let acquire = Command::Acquire {
            name,
            entry,
            ttl,
            floor: 0,
        };
        let wanted = [
            "EVALSHA",
            scripts::ACQUIRE.sha(),
            "5",
            "q:@mutex:a:b",
            "q:open",
            "q:time",
            "q:c0",
            "q:c1",
            "1 3 30000",
            "30000",
            "@mutex:a:b",
            &holder,
            "11",
            "0",
        ];
        assert_eq!(words(acquire), wanted);
        assert_eq!(
            words(Command::Disconnect { client: 10 }),
            ["CLIENT", "KILL", "ID", "10"]
        );
        assert_eq!(words(Command::Survey)[3], "q:@*");
    }

    #[test]
    fn numbers_are_decimal() {
        for n in [0, 9, 10, 99, 100, u64::MAX] {
            assert_eq!(words(Command::Disconnect { client: n })[3], n.to_string());
        }
    }

    #[test]
    fn a_pattern_matches_the_prefix_as_it_is() {
        let keys = Keys::new(r"a*?[^-]\b");
        assert_eq!(keys.locks, br"a\*\?\[\^\-\]\\b:@*");
    }

    #[test]
    fn all_scripts_are_loaded_by_as_many_commands() {
        let text = text(Command::LoadScripts);
        assert_eq!(
            text.matches("\r\nSCRIPT\r\n$4\r\nLOAD\r\n").count(),
            answers(&Command::LoadScripts)
        );
        assert_eq!(answers(&Command::Survey), 1);
    }
}

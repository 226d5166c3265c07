//! Commands as the bytes that a server reads (RESP). They are the same for every node of a fleet.

use super::scripts::{self, Script};
use crate::{
    name::Name,
    node::{
        Command,
        admission::{
            self, Admit, Handshake, Mode,
            record::{FORMAT, ms},
        },
        mutex,
        operation::Wire,
        server,
    },
};

/// Stands before a name in the key of its lock and in the field of its counter. No prefix may hold
/// an `@`, so the keys of two deployments differ even where one's prefix begins with the other's.
const MUTEX: &[u8] = b"@mutex:";

/// The lock of a counter. Not every field of their hash is one: `_` is the time of its beginning.
pub(super) fn counted(field: &[u8]) -> Option<Name> {
    let name = str::from_utf8(field.strip_prefix(MUTEX)?).ok()?;
    Name::new(name).ok()
}

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
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        let key = |rest: &[u8]| [prefix.as_bytes(), b":", rest].concat();
        Self {
            boot: key(b"boot"),
            open: key(b"open"),
            time: key(b"time"),
            current: key(b"c0"),
            previous: key(b"c1"),
            lock: key(MUTEX),
        }
    }

    /// A key that nobody uses: that of the lock with the empty name, which no client can take.
    pub(super) fn nobodys(&self) -> &[u8] {
        &self.lock
    }

    /// One of each sort.
    pub(super) fn all(&self) -> [&[u8]; 6] {
        [
            self.nobodys(),
            &self.boot,
            &self.open,
            &self.time,
            &self.current,
            &self.previous,
        ]
    }

    /// All of them, as an ACL has it.
    pub(super) fn pattern(&self) -> String {
        let prefix = self.boot.strip_suffix(b"boot").unwrap_or_default();
        format!("~{}*", String::from_utf8_lossy(prefix))
    }
}

/// The bytes of a command. Its guard, if it has one, is the last argument.
pub(crate) fn wire(command: &Command, keys: &Keys) -> Wire {
    let mut writer = Writer(Vec::with_capacity(512));
    encode(&mut writer, command, keys);
    Wire {
        bytes: writer.0,
        is_guarded: command.is_guarded(),
        replies: replies(command),
    }
}

/// How many replies of the server belong to this command.
pub(super) fn replies(command: &Command) -> usize {
    match command {
        Command::Server(server::Command::LoadScripts) => scripts::ALL.len(),
        Command::Admission(admission::Command::Survey) => 3,
        _ => 1,
    }
}

/// A command of these words.
pub(super) fn words(wire: &mut Vec<u8>, words: &[impl AsRef<[u8]>]) {
    let mut writer = Writer(std::mem::take(wire));
    writer.array(words.len());
    for word in words {
        writer.put(Arg::Bytes(word.as_ref()));
    }
    *wire = writer.0;
}

/// A guard as it is put in.
pub(crate) fn guard(guard: &str) -> Vec<u8> {
    let mut writer = Writer(Vec::with_capacity(guard.len() + 8));
    writer.put(Arg::Text(guard));
    writer.0
}

fn encode(wire: &mut Writer, command: &Command, keys: &Keys) {
    use Arg::{Number, Text};
    let open = Arg::Bytes(&keys.open);
    let boot = Arg::Bytes(&keys.boot);
    let time = Arg::Bytes(&keys.time);
    let current = Arg::Bytes(&keys.current);
    let previous = Arg::Bytes(&keys.previous);
    let lock = |name| Arg::Named(&keys.lock, name);
    let counter = |name| Arg::Named(MUTEX, name);
    match command {
        Command::Admission(admission::Command::Handshake(Handshake {
            masters,
            list,
            terms,
            vouch,
            used,
            known,
            witnessed,
            nonce,
        })) => {
            let (run, id) = known.as_ref().map_or(("", ""), |(run, id)| (run, id));
            // By its source: it never depends on what the server has cached.
            wire.run(
                "EVAL",
                scripts::HANDSHAKE.source,
                &[boot, open, time],
                &[
                    Number(FORMAT.into()),
                    Number(*masters),
                    Text(list),
                    Number(ms(terms.max_ttl)),
                    Number(ms(terms.margin)),
                    Number(*vouch as u64),
                    Number((*used).into()),
                    Text(run),
                    Text(id),
                    Number(*witnessed),
                    Text(nonce),
                ],
            );
        }
        Command::Mutex(mutex::Command::Acquire {
            name,
            entry,
            ttl,
            floor,
            max_ttl,
        }) => wire.call_guarded(
            &scripts::ACQUIRE,
            &[lock(name), open, time, current, previous],
            &[
                Number(ms(*max_ttl)),
                counter(name),
                Text(entry.as_str()),
                Number(ms(*ttl)),
                Number(*floor),
            ],
        ),
        Command::Mutex(mutex::Command::Raise {
            name,
            entry,
            token,
            max_ttl,
        }) => wire.call_guarded(
            &scripts::RAISE,
            &[lock(name), open, current, previous],
            &[
                Number(ms(*max_ttl)),
                counter(name),
                Text(entry.as_str()),
                Number(*token),
            ],
        ),
        Command::Mutex(mutex::Command::Extend { name, entry, ttl }) => wire.call_guarded(
            &scripts::EXTEND,
            &[lock(name), open],
            &[Text(entry.as_str()), Number(ms(*ttl))],
        ),
        Command::Mutex(mutex::Command::Release { name, entry }) => {
            wire.call(&scripts::RELEASE, &[lock(name)], &[Text(entry.as_str())]);
        }
        Command::Mutex(mutex::Command::Inspect { name }) => wire.call_guarded(
            &scripts::INSPECT,
            &[lock(name), open, current, previous],
            &[counter(name)],
        ),
        Command::Mutex(mutex::Command::Evict { name }) => {
            wire.call_guarded(&scripts::EVICT, &[lock(name), open], &[]);
        }
        Command::Admission(admission::Command::Survey) => {
            wire.array(3);
            wire.put(Text("EXISTS"));
            wire.put(current);
            wire.put(previous);
            // For people: at most one of two fields is `_`. Nothing depends on what it says, so no user
            // needs a right to it.
            for counters in [current, previous] {
                wire.array(3);
                wire.put(Text("HRANDFIELD"));
                wire.put(counters);
                wire.put(Number(2));
            }
        }
        Command::Admission(admission::Command::Admit(Admit {
            masters,
            list,
            run,
            id,
            terms,
            witnessed,
            mode,
        })) => wire.call(
            &scripts::ADMIT,
            &[boot, open],
            &[
                Number(FORMAT.into()),
                Number(*masters),
                Text(list),
                Text(run),
                Text(id),
                Number(ms(terms.max_ttl)),
                Number(ms(terms.margin)),
                Number(*witnessed),
                Text(match mode {
                    Mode::New => "new",
                    Mode::Raise => "raise",
                    Mode::Forced => "forced",
                }),
            ],
        ),
        Command::Server(server::Command::Disconnect { client }) => {
            wire.array(4);
            wire.put(Text("CLIENT"));
            wire.put(Text("KILL"));
            wire.put(Text("ID"));
            wire.put(Number(*client));
        }
        Command::Server(server::Command::LoadScripts) => {
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

struct Writer(Vec<u8>);

impl Writer {
    fn call(&mut self, script: &Script, keys: &[Arg<'_>], args: &[Arg<'_>]) {
        self.run("EVALSHA", script.sha(), keys, args);
    }

    /// The guard is to follow.
    fn call_guarded(&mut self, script: &Script, keys: &[Arg<'_>], args: &[Arg<'_>]) {
        self.array(1 + 3 + keys.len() + args.len());
        self.script("EVALSHA", script.sha(), keys, args);
    }

    fn run(&mut self, how: &str, script: &str, keys: &[Arg<'_>], args: &[Arg<'_>]) {
        self.array(3 + keys.len() + args.len());
        self.script(how, script, keys, args);
    }

    fn script(&mut self, how: &str, script: &str, keys: &[Arg<'_>], args: &[Arg<'_>]) {
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
    use std::time::Duration;

    use super::*;
    use crate::{
        node::admission::{Terms, Vouch},
        owner::{Entry, Label},
    };

    const GUARD: &str = "2 3 word 30000 5000 id";

    fn text(command: Command) -> String {
        let wire = wire(&command, &Keys::new("q"));
        let mut bytes = wire.bytes;
        if wire.is_guarded {
            bytes.extend(guard(GUARD));
        }
        String::from_utf8(bytes).unwrap()
    }

    /// The words of each of its commands.
    fn all_words(command: Command) -> Vec<Vec<String>> {
        let text = text(command);
        let mut lines = text.strip_suffix("\r\n").unwrap().split("\r\n");
        let mut all = Vec::new();
        while let Some(line) = lines.next() {
            let count = line.strip_prefix('*').unwrap().parse().unwrap();
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
            all.push(words);
        }
        all
    }

    fn words(command: Command) -> Vec<String> {
        let [words] = all_words(command).try_into().unwrap();
        words
    }

    #[test]
    fn a_command_is_a_script_with_its_keys() {
        let name = Name::new("a:b").unwrap();
        let entry = Entry::new(uuid::Uuid::from_u128(1), &Label::new("host:1").unwrap());
        let ttl = Duration::from_micros(10_001);
        let holder = entry.as_str().to_owned();
        let acquire = Command::Mutex(mutex::Command::Acquire {
            name,
            entry,
            ttl,
            floor: 0,
            max_ttl: Duration::from_secs(30),
        });
        let wanted = [
            "EVALSHA",
            scripts::ACQUIRE.sha(),
            "5",
            "q:@mutex:a:b",
            "q:open",
            "q:time",
            "q:c0",
            "q:c1",
            "30000",
            "@mutex:a:b",
            &holder,
            "11",
            "0",
            GUARD,
        ];
        assert_eq!(words(acquire), wanted);
        assert_eq!(
            words(Command::Server(server::Command::Disconnect { client: 10 })),
            ["CLIENT", "KILL", "ID", "10"]
        );
    }

    #[test]
    fn a_survey_asks_for_counters_and_for_the_name_of_one() {
        let asked = all_words(Command::Admission(admission::Command::Survey));
        assert_eq!(
            asked,
            [
                vec!["EXISTS", "q:c0", "q:c1"],
                vec!["HRANDFIELD", "q:c0", "2"],
                vec!["HRANDFIELD", "q:c1", "2"],
            ]
        );
        assert_eq!(
            asked.len(),
            replies(&Command::Admission(admission::Command::Survey))
        );
    }

    #[test]
    fn the_field_of_a_counter_holds_its_name() {
        let longest = format!("@mutex:{}", "a".repeat(512));
        for (field, name) in [
            (&b"@mutex:a:b"[..], Some("a:b")),
            (b"@mutex:_", Some("_")),
            (b"@mutex:@mutex:", Some("@mutex:")),
            (longest.as_bytes(), longest.strip_prefix("@mutex:")),
            (format!("{longest}a").as_bytes(), None),
            (b"@mutex:", None),
            (b"@mutex:\xff", None),
            (b"_", None),
            (b"", None),
        ] {
            let read = counted(field);
            assert_eq!(read.as_ref().map(Name::as_str), name, "{field:?}");
        }
    }

    #[test]
    fn a_handshake_is_sent_by_its_source_and_has_no_guard() {
        let hello = Handshake {
            masters: 3,
            list: "word".into(),
            terms: Terms::new(Duration::from_micros(30_000_001), Duration::from_secs(5)),
            vouch: Vouch::Majority,
            used: true,
            known: Some(("run/0/-1".into(), "id".into())),
            witnessed: 9,
            nonce: "nonce".into(),
        };
        let unknown = Handshake {
            known: None,
            vouch: Vouch::Stranger,
            used: false,
            ..hello.clone()
        };
        for (hello, brought) in [
            (hello, "2 3 word 30001 5000 2 1 run/0/-1 id 9 nonce"),
            (unknown, "2 3 word 30001 5000 0 0   9 nonce"),
        ] {
            let words = words(Command::Admission(admission::Command::Handshake(hello)));
            assert_eq!(
                (&*words[0], &*words[1]),
                ("EVAL", scripts::HANDSHAKE.source)
            );
            assert_eq!(words[2..6], ["3", "q:boot", "q:open", "q:time"]);
            assert_eq!(words[6..].join(" "), brought);
        }
    }

    #[test]
    fn an_admit_names_the_record_and_has_no_guard() {
        for (mode, word) in [
            (Mode::New, "new"),
            (Mode::Raise, "raise"),
            (Mode::Forced, "forced"),
        ] {
            let admit = Admit {
                masters: 5,
                list: "word".into(),
                run: "run".into(),
                id: "id".into(),
                terms: Terms::new(Duration::from_secs(30), Duration::ZERO),
                witnessed: 30_300,
                mode,
            };
            let words = words(Command::Admission(admission::Command::Admit(admit)));
            assert_eq!(words[1..5], [scripts::ADMIT.sha(), "2", "q:boot", "q:open"]);
            let brought = format!("2 5 word run id 30000 0 30300 {word}");
            assert_eq!(words[5..].join(" "), brought);
        }
    }

    #[test]
    fn the_guard_goes_last() {
        let name = Name::new("a").unwrap();
        let entry = Entry::new(uuid::Uuid::from_u128(1), &Label::new("host:1").unwrap());
        let (ttl, max_ttl) = (Duration::from_secs(1), Duration::from_secs(30));
        let commands = [
            Command::Mutex(mutex::Command::Acquire {
                name: name.clone(),
                entry: entry.clone(),
                ttl,
                floor: 7,
                max_ttl,
            }),
            Command::Mutex(mutex::Command::Raise {
                name: name.clone(),
                entry: entry.clone(),
                token: 7,
                max_ttl,
            }),
            Command::Mutex(mutex::Command::Extend {
                name: name.clone(),
                entry: entry.clone(),
                ttl,
            }),
            Command::Mutex(mutex::Command::Release {
                name: name.clone(),
                entry,
            }),
            Command::Mutex(mutex::Command::Inspect { name: name.clone() }),
            Command::Mutex(mutex::Command::Evict { name }),
            Command::Admission(admission::Command::Survey),
        ];
        for command in &commands {
            let last = all_words(command.clone()).pop().unwrap().pop().unwrap();
            assert_eq!(last == GUARD, command.is_guarded(), "{command:?}");
        }
    }

    #[test]
    fn numbers_are_decimal() {
        for n in [0, 9, 10, 99, 100, u64::MAX] {
            assert_eq!(
                words(Command::Server(server::Command::Disconnect { client: n }))[3],
                n.to_string()
            );
        }
    }

    #[test]
    fn all_scripts_are_loaded_by_as_many_commands() {
        let text = text(Command::Server(server::Command::LoadScripts));
        assert_eq!(
            text.matches("\r\nSCRIPT\r\n$4\r\nLOAD\r\n").count(),
            replies(&Command::Server(server::Command::LoadScripts))
        );
    }
}

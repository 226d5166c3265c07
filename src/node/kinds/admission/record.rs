//! The record that every memory carries, and functions of that record alone (protocol §2).

use std::{fmt, str::FromStr, time::Duration};

use sha1_smol::Sha1;

use crate::{
    base::rules::{Rule, Rules},
    node::wire::ms,
};

/// The number of the format in which the keys on the nodes are written.
pub(crate) const FORMAT: u32 = 3;

/// The longest `max_ttl`, and the longest margin.
pub(crate) const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The length of a whole history, longer than any quarantine and any interval of a rate limit.
const HISTORY_MS: u64 = 27 * 3600 * 1000;

/// The list word of clients with the setting `throwaway`.
pub(crate) const THROWAWAY: &str = "throwaway";
/// The clients of a record's fleet count as present if one of them has met the node within this time, by the node's
/// clock. Each of them meets a node that does not vote every second.
pub(crate) const VISIT: Duration = Duration::from_secs(3);

/// The settings on which the clients of a fleet agree: `max_ttl` and M, in whole ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The longest lease of the deployment.
    pub max_ttl: Duration,
    /// M, the margin of the quarantine.
    pub margin: Duration,
}

impl Terms {
    /// Both in whole ms, rounded up.
    pub(crate) fn new(max_ttl: Duration, margin: Duration) -> Self {
        Self {
            max_ttl: Duration::from_millis(ms(max_ttl)),
            margin: Duration::from_millis(ms(margin)),
        }
    }

    /// Z, in whole ms, rounded up: how long a memory must have been witnessed before it votes.
    pub(crate) fn quarantine(&self) -> u64 {
        let max_ttl = ms(self.max_ttl);
        max_ttl
            .saturating_add(max_ttl.div_ceil(100))
            .saturating_add(ms(self.margin))
    }

    /// The greatest w, in ms. A bootstrap writes it on new nodes, which have no history to wait for.
    pub(crate) fn history(&self) -> u64 {
        self.quarantine().max(HISTORY_MS)
    }

    /// The greater of each of the two.
    pub(crate) fn join(self, other: Self) -> Self {
        Self {
            max_ttl: self.max_ttl.max(other.max_ttl),
            margin: self.margin.max(other.margin),
        }
    }

    /// Returns true if one of the two is greater than in `other`.
    pub(crate) fn exceed(&self, other: Self) -> bool {
        self.max_ttl > other.max_ttl || self.margin > other.margin
    }
}

/// The fleet id of a list of masters without a name. It is the same for clients that were given the same masters.
pub(crate) fn list_word(addresses: &[String]) -> String {
    let mut sorted: Vec<&str> = addresses.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    let mut word = Sha1::from(sorted.join("\n")).digest().to_string();
    word.truncate(8);
    word
}

/// For each address, its index in the sorted list.
pub(crate) fn ranks(addresses: &[String]) -> Vec<usize> {
    let before = |one: &String| addresses.iter().filter(|other| *other < one).count();
    addresses.iter().map(before).collect()
}

/// The record in `<prefix>:boot`: "format N list max_ttl M run id v u w".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootRecord {
    /// N: how many masters the fleet has.
    pub masters: u64,
    /// The fleet id, which stands for the list of masters.
    pub list: String,
    /// The terms on which its clients agree.
    pub terms: Terms,
    /// The process, and the memory of it: see [`Server::run`](super::Server::run).
    pub run: String,
    /// The nonce that the client which made the record brought.
    pub id: String,
    /// v: a client that saw voters of this fleet has brought the terms.
    pub vouched: bool,
    /// u: some client has met a voter of this fleet.
    pub used: bool,
    /// w: for how many ms this memory has been witnessed.
    pub witnessed: u64,
}

impl BootRecord {
    /// The text of `open` while a node with this record votes: "max_ttl format N list M id". The id makes the data of
    /// another member of the fleet fail the guard here.
    pub(crate) fn guard(&self, rules: Rules) -> String {
        let Self {
            masters,
            list,
            terms,
            id,
            ..
        } = self;
        let (max_ttl, margin) = (ms(terms.max_ttl), ms(terms.margin));
        let id = if rules.hold(Rule::OwnGuard) { id } else { "" };
        let margin = if rules.hold(Rule::MarginInRecord) {
            margin
        } else {
            0
        };
        format!("{max_ttl} {FORMAT} {masters} {list} {margin} {id}")
    }

    /// Reads a record of another format. N, the fleet id and the terms stand in front in every format. A record whose
    /// remaining words have another form counts as vouched for.
    pub(crate) fn of_another_format(text: &str) -> Option<Self> {
        let (_, words) = text.split_once(' ')?;
        let whole = |words: &str| format!("{FORMAT} {words}").parse().ok();
        whole(words).or_else(|| {
            let front: Vec<&str> = words.splitn(5, ' ').collect();
            let [masters, list, max_ttl, margin, _] = front[..] else {
                return None;
            };
            whole(&format!("{masters} {list} {max_ttl} {margin} - - 1 1 0"))
        })
    }

    /// Returns true if this memory was witnessed for long enough.
    pub(crate) fn votes(&self) -> bool {
        self.witnessed >= self.terms.quarantine()
    }
}

impl fmt::Display for BootRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            masters,
            list,
            terms,
            run,
            id,
            vouched,
            used,
            witnessed,
        } = self;
        let (max_ttl, margin) = (ms(terms.max_ttl), ms(terms.margin));
        let (v, u) = (u8::from(*vouched), u8::from(*used));
        write!(
            f,
            "{FORMAT} {masters} {list} {max_ttl} {margin} {run} {id} {v} {u} {witnessed}"
        )
    }
}

/// The contents of `<prefix>:boot`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Nothing that can be read as a record.
    Nothing,
    /// A record of another format. Only the number of the format is known.
    Other(String),
    /// A record.
    Record(BootRecord),
}

impl Stored {
    /// Parses the text. A record that does not parse, or has terms above [`LONGEST`], does not count.
    pub(crate) fn read(text: &str) -> Self {
        let format = text.split(' ').next().unwrap_or_default();
        let digits = !format.is_empty() && format.bytes().all(|b| b.is_ascii_digit());
        if digits && format.trim_start_matches('0') != FORMAT.to_string() {
            return Self::Other(format.chars().take(20).collect());
        }
        match text.parse() {
            Ok(record) => Self::Record(record),
            Err(()) => Self::Nothing,
        }
    }

    /// The record, if there is one of this format.
    pub(crate) fn record(&self) -> Option<&BootRecord> {
        match self {
            Self::Record(record) => Some(record),
            Self::Nothing | Self::Other(_) => None,
        }
    }
}

impl FromStr for BootRecord {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let words: Vec<&str> = text.split(' ').collect();
        let [format, masters, list, max_ttl, margin, run, id, v, u, w] = words[..] else {
            return Err(());
        };
        if format != FORMAT.to_string() {
            return Err(());
        }
        // The Lua pattern %S+ works byte by byte. The script reads no more digits than a double keeps.
        let space = |byte: u8| matches!(byte, b'\t'..=b'\r' | b' ');
        let word = |text: &str| match text.is_empty() || text.bytes().any(space) {
            true => Err(()),
            false => Ok(text.to_owned()),
        };
        let number = |digits: &str| match digits.len() {
            1..=15 if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().map_err(drop),
            _ => Err(()),
        };
        let flag = |text: &str| match text {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => Err(()),
        };
        let terms = Terms {
            max_ttl: Duration::from_millis(number(max_ttl)?),
            margin: Duration::from_millis(number(margin)?),
        };
        if terms.max_ttl > LONGEST || terms.margin > LONGEST {
            return Err(());
        }
        Ok(Self {
            masters: number(masters)?,
            list: word(list)?,
            terms,
            run: word(run)?,
            id: word(id)?,
            vouched: flag(v)?,
            used: flag(u)?,
            witnessed: number(w)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(max_ttl: u64, margin: u64) -> Terms {
        Terms {
            max_ttl: Duration::from_millis(max_ttl),
            margin: Duration::from_millis(margin),
        }
    }

    #[test]
    fn the_quarantine_is_z_rounded_up() {
        assert_eq!(terms(30_000, 5_000).quarantine(), 35_300);
        assert_eq!(terms(1, 0).quarantine(), 2);
        let tiny = Terms::new(Duration::from_micros(1), Duration::from_nanos(1));
        assert_eq!(tiny.quarantine(), 3);
        assert_eq!(
            Terms::new(Duration::MAX, Duration::MAX).quarantine(),
            u64::MAX
        );
    }

    #[test]
    fn a_record_reads_as_it_was_written() {
        let text = "3 3 a1b2c3d4 30000 5000 abc/00000000/-1 theirs 1 0 1000";
        let record: BootRecord = text.parse().unwrap();
        assert_eq!(record.to_string(), text);
        assert_eq!(record.guard(Rules::ALL), "30000 3 3 a1b2c3d4 5000 theirs");
        assert!(!record.votes());
        let ripe = |witnessed| BootRecord {
            witnessed,
            ..record.clone()
        };
        assert!(!ripe(35_299).votes() && ripe(35_300).votes());
        assert_eq!(Stored::read(text), Stored::Record(record));
        // A space in Unicode, but not in Lua. If this were read as no record, the node would be refused without a
        // reason.
        let odd = text.replace("a1b2c3d4", "a\u{a0}b\u{85}");
        assert!(Stored::read(&odd).record().is_some());
    }

    #[test]
    fn text_that_does_not_parse_is_not_a_record() {
        for bad in [
            "",
            "x",
            "3",
            "03 3 l 30000 5000 r i 1 0 1000",
            "3 3 l 30000 5000 r i 1 0",
            "3 3 l 30000 5000 r i 1 0 1 1",
            "3 3 l 30000 5000 r i 2 0 1000",
            "3 3 l 30000 5000 r i 1  1000",
            "3 3  30000 5000 r i 1 0 1000",
            "3 3 l -1 5000 r i 1 0 1000",
            "3 3 l 86400001 5000 r i 1 0 1000",
            "3 3 l 30000 86400001 r i 1 0 1000",
            "3 3 l 30000 5000 r i 1 0 1000000000000000",
        ] {
            assert_eq!(Stored::read(bad), Stored::Nothing, "{bad:?}");
        }
        for (other, format) in [
            ("1 3 abc/00000000/-1 theirs 30000 1000 500", "1"),
            (
                "2 3 a1b2c3d4 30000 5000 abc/00000000/-1 theirs 1 0 1000",
                "2",
            ),
            ("4", "4"),
            ("99999999999999999999999 x", "99999999999999999999"),
        ] {
            assert_eq!(Stored::read(other), Stored::Other(format.into()));
        }
    }

    #[test]
    fn a_list_is_the_same_in_any_order() {
        let word =
            |list: &[&str]| list_word(&list.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(word(&["a:1/0", "b:1/0"]), word(&["b:1/0", "a:1/0"]));
        assert_ne!(word(&["a:1/0", "b:1/0"]), word(&["a:1/0", "b:1/1"]));
        assert_ne!(word(&["a:1/0", "b:1/0"]), word(&["a:1/0", "c:1/0"]));
        assert_eq!(word(&[]).len(), 8);
    }
}

//! Sends several operations on locks in one script call (protocol §3, "Batches").

use crate::{
    base::{name::Name, owner::Entry},
    node::{
        answer::Answer,
        request::{Place, Request, Target, Verb},
        wire::{
            Arg::{self, Bytes, Number, Text},
            Keys, Script, Writer, ms,
        },
    },
};

pub(super) static BATCH: Script = Script::new(include_str!("batch.lua"));

/// About how many bytes an operation adds to those of its name and its entry.
const OVERHEAD: usize = 64;
/// About how many bytes a place adds to those of its channel.
const PLACE: usize = 96;

/// A request as one operation of a batch.
pub(crate) struct Rider<'c> {
    letter: u8,
    name: &'c Name,
    entry: &'c Entry,
    /// The seq of the grant that is meant; none: any grant of the entry.
    grant: Option<u64>,
    numbers: [Option<u64>; 2],
    place: Option<&'c Place>,
    /// The answer to this operation if the whole batch went as asked.
    pub(crate) as_asked: Answer,
}

impl<'c> Rider<'c> {
    /// The request as an operation of a batch. An operation that travels alone is a batch of one. None: it has a script
    /// of its own.
    pub(crate) fn of(request: &'c Request) -> Option<Self> {
        let Target::Mutex(names) = &request.target else {
            return None;
        };
        let name = names.one()?;
        let rider = |letter, as_asked| Rider::new(letter, name, &request.entry, as_asked);
        Some(match &request.verb {
            Verb::Acquire { ttl, floor, wait } => {
                let numbers = [Some(ms(*ttl)), Some(*floor)];
                match wait.place() {
                    None => Rider {
                        numbers,
                        ..rider(b'A', Answer::Granted(*floor))
                    },
                    Some(place) => {
                        let (counter, seq) = (*floor, place.seq);
                        let letter = if place.only_last { b'L' } else { b'J' };
                        Rider {
                            numbers,
                            place: Some(place),
                            ..rider(letter, Answer::Taken { counter, seq })
                        }
                    }
                }
            }
            Verb::Yield { floor, wait } => match wait.place() {
                Some(place) => Rider {
                    place: Some(place),
                    ..rider(b'Y', Answer::Yielded).with(*floor)
                },
                None => rider(b'R', Answer::Released(true)).with(*floor),
            },
            Verb::Raise { seq, token } => Rider {
                grant: (*seq != 0).then_some(*seq),
                ..rider(b'T', Answer::Raised(*token)).with(*token)
            },
            Verb::Extend { ttl, .. } => rider(b'E', Answer::Extended).with(ms(*ttl)),
            Verb::Release(release) => rider(b'R', Answer::Released(true)).with(release.floor),
            Verb::Repair { .. } => return None,
        })
    }

    fn with(mut self, number: u64) -> Self {
        self.numbers = [Some(number), None];
        self
    }

    fn new(letter: u8, name: &'c Name, entry: &'c Entry, as_asked: Answer) -> Self {
        Self {
            letter,
            name,
            entry,
            grant: None,
            numbers: [None; 2],
            place: None,
            as_asked,
        }
    }

    /// About how many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        let place = self.place.map_or(0, |place| place.channel.len() + PLACE);
        self.name.as_str().len() + self.entry.as_str().len() + OVERHEAD + place
    }

    fn words(&self) -> usize {
        let place = if self.place.is_some() { 7 } else { 0 };
        1 + self.numbers.iter().flatten().count() + place
    }

    fn put(self, writer: &mut Writer) {
        match self.grant {
            Some(seq) => writer.put(Text(&granted(self.entry, seq))),
            None => writer.put(Text(self.entry.as_str())),
        }
        for number in self.numbers.into_iter().flatten() {
            writer.put(Number(number));
        }
        if let Some(place) = self.place {
            place.words().into_iter().for_each(|word| writer.put(word));
        }
    }
}

impl Place {
    /// The arguments in the order in which the scripts read them.
    fn words(&self) -> [Arg<'_>; 7] {
        [
            Number(self.seq),
            Number(self.ticket),
            Number(ms(self.term)),
            Number(ms(self.lock_delay)),
            Number(ms(self.life)),
            Number(ms(self.claim)),
            Text(&self.channel),
        ]
    }
}

/// The beginning of the text in a lock that came to this entry by this request.
fn granted(entry: &Entry, seq: u64) -> String {
    format!("{} {seq}", entry.as_str())
}

/// Writes one script call with all of them. The caller writes the guard behind it.
pub(crate) fn encode<'c>(
    riders: impl Iterator<Item = Rider<'c>> + Clone,
    writer: &mut Writer,
    keys: &Keys,
) {
    let (mut letters, mut words) = (Vec::with_capacity(64), 0);
    for rider in riders.clone() {
        letters.push(rider.letter);
        words += rider.words();
    }
    // The other keys are open, waiting, c0 and c1. The other words are the letters and the guard.
    writer.begin_call(&BATCH, letters.len() + 4, words + 2);
    writer.put(keys.open());
    writer.put(keys.waiting());
    for rider in riders.clone() {
        writer.put(keys.lock(rider.name));
    }
    writer.put(keys.current());
    writer.put(keys.previous());
    writer.put(Bytes(&letters));
    for rider in riders {
        rider.put(writer);
    }
}

//! A fence in this process: the newest token of every resource, in memory.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{Mutex, PoisonError},
};

use hashbrown::HashTable;

use crate::FencingToken;

/// So many resources, unless asked otherwise.
const ROOM: usize = 1 << 16;
/// Threads that ask about different resources seldom meet.
const SHARDS: usize = 16;
/// So many resources to a shard at least. What a shard needs beyond its share grows with the root of
/// it: of fewer that would be more than a quarter.
const PER_SHARD: usize = 600;

/// Remembers the newest token of every resource, and refuses an older one.
///
/// Put it where all writes to a resource come by: the service that owns it, the task that writes
/// the file. It is `Send + Sync`; share it by reference or in an `Arc`.
///
/// It promises that once a token was admitted for a resource, no smaller one ever is.
///
/// Its memory is bounded: it knows about [`room`](Self::with_room) resources (65,536 by default), and
/// never more than a quarter more.
/// When it is full it forgets those with the oldest tokens, and from then on refuses any token that
/// is older than theirs for a resource that it does not know. Such a refusal may be one too many,
/// never one too few. Tokens of all names follow the clock in µs, so it takes a holder that
/// has held its lock since before all that the gate still knows. Tokens that were numbered otherwise
/// (Consul's, or your own) belong into another gate, with room for all their resources.
///
/// It does not make the write: between [`admit`](Self::admit) and a write, a newer holder may be
/// admitted and write first. Where that matters, keep one lock around both, or let the store itself
/// compare tokens in the statement that writes. It does not reach beyond this process, and it forgets
/// everything with it: a token from before a restart passes until a newer one has been seen. Where
/// that matters, keep the newest token beside what it protects.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use quorate::{Quorum, fence::Gate};
/// let gate = Gate::new();
/// let mutex = Quorum::in_memory(3).mutex("invoice:42");
///
/// let first = mutex.lock().await?;
/// let old = first.token();
/// gate.admit("invoice:42", old)?;
/// first.release().await?;
///
/// let second = mutex.lock().await?;
/// gate.admit("invoice:42", second.token())?;
/// gate.admit("invoice:42", second.token())?; // a holder may write many times
/// assert!(gate.admit("invoice:42", old).is_err(), "too late");
/// # Ok(()) }
/// ```
pub struct Gate {
    shards: Box<[Shard]>,
    hasher: RandomState,
    room: usize,
    /// How many resources one shard has room for.
    share: usize,
}

/// On a cache line of its own: its neighbours are other threads' locks.
#[repr(align(64))]
#[derive(Default)]
struct Shard(Mutex<Marks>);

#[derive(Default)]
struct Marks {
    newest: HashTable<Mark>,
    /// The newest token of all that were forgotten.
    floor: Option<FencingToken>,
}

struct Mark {
    resource: Box<str>,
    token: FencingToken,
}

impl Gate {
    /// A gate that has seen nothing: the first token of a resource always passes.
    pub fn new() -> Self {
        Self::with_room(ROOM)
    }

    /// A gate with room for so many resources at once; at least one. So many it keeps without
    /// forgetting any; a gate for 1,200 and more may keep up to a quarter more.
    pub fn with_room(resources: usize) -> Self {
        let room = resources.max(1);
        let shards = (room / PER_SHARD).clamp(1, SHARDS);
        Self {
            shards: (0..shards).map(|_| Shard::default()).collect(),
            hasher: RandomState::new(),
            room,
            share: share(room, shards),
        }
    }

    /// Lets `token` through to `resource` unless a newer one was there before. An equal one passes.
    ///
    /// # Errors
    /// [`StaleToken`]: do not write. Whoever holds that token has lost its lock, and somebody else
    /// has written since; or the gate was full and cannot tell any more.
    pub fn admit(&self, resource: &str, token: FencingToken) -> Result<(), StaleToken> {
        let hash = self.hasher.hash_one(resource);
        // The table uses the hash's lowest and highest bits; these are from its middle.
        let index = (hash >> 32) as usize % self.shards.len().max(1);
        let Some(Shard(marks)) = self.shards.get(index) else {
            // There is always one. Who knows nothing lets nobody in.
            return Err(StaleToken::new(resource, token, token, true));
        };
        // A panic elsewhere cannot leave a half-made entry behind: it is one insertion.
        let mut marks = marks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mark) = marks
            .newest
            .find_mut(hash, |mark| *mark.resource == *resource)
        {
            if token < mark.token {
                return Err(StaleToken::new(resource, token, mark.token, false));
            }
            mark.token = token;
            return Ok(());
        }
        if let Some(floor) = marks.floor.filter(|floor| token < *floor) {
            return Err(StaleToken::new(resource, token, floor, true));
        }
        if marks.newest.len() >= self.share {
            marks.forget_the_oldest();
        }
        let mark = Mark {
            resource: resource.into(),
            token,
        };
        let hasher = |mark: &Mark| self.hasher.hash_one(&*mark.resource);
        marks.newest.insert_unique(hash, mark, hasher);
        Ok(())
    }
}

/// How many resources come to a shard at most when there are `room` of them. Hashing spreads them
/// unevenly: six standard deviations more than the mean is less than once in ten million gates.
fn share(room: usize, shards: usize) -> usize {
    let mean = room.div_ceil(shards);
    match shards {
        1 => room,
        _ => mean.saturating_add(mean.saturating_mul(36).isqrt() + 1),
    }
}

impl Marks {
    /// Makes room for an eighth of what is there, so that it is done seldom.
    fn forget_the_oldest(&mut self) {
        let mut tokens: Vec<FencingToken> = self.newest.iter().map(|mark| mark.token).collect();
        let last = (tokens.len() / 8).min(tokens.len().saturating_sub(1));
        let (_, newest_to_go, _) = tokens.select_nth_unstable(last);
        let newest_to_go = *newest_to_go;
        self.newest.retain(|mark| mark.token > newest_to_go);
        self.floor = self.floor.max(Some(newest_to_go));
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("room", &self.room)
            .finish_non_exhaustive()
    }
}

/// A token was refused because the resource has seen a newer one: a later holder was there.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleToken {
    /// What was to be written.
    pub resource: String,
    /// The token that was refused.
    pub token: FencingToken,
    /// The newest token that the resource has seen; where it was forgotten, the newest of all that
    /// were.
    pub newest: FencingToken,
    /// A full [`Gate`] has forgotten resources with newer tokens than this, and does not know whether
    /// this one was among them.
    pub forgotten: bool,
}

impl StaleToken {
    pub(crate) fn new(
        resource: impl Into<String>,
        token: FencingToken,
        newest: FencingToken,
        forgotten: bool,
    ) -> Self {
        Self {
            resource: resource.into(),
            token,
            newest,
            forgotten,
        }
    }
}

impl fmt::Display for StaleToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resource,
            token,
            newest,
            forgotten,
        } = self;
        match forgotten {
            false => write!(
                f,
                "token {token} is stale for {resource:?}: token {newest} was there already"
            ),
            true => write!(
                f,
                "token {token} may be stale for {resource:?}: the gate is full and has forgotten \
                 resources with tokens up to {newest}; give it more room"
            ),
        }
    }
}

impl std::error::Error for StaleToken {}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> FencingToken {
        FencingToken::try_from(number).unwrap()
    }

    #[test]
    fn equal_and_newer_tokens_pass_and_older_ones_do_not() {
        let gate = Gate::new();
        assert_eq!(gate.admit("a", token(5)), Ok(()));
        assert_eq!(
            gate.admit("a", token(5)),
            Ok(()),
            "one holder writes many times"
        );
        assert!(gate.admit("a", token(4)).is_err());
        assert_eq!(gate.admit("a", token(6)), Ok(()));
        assert!(
            gate.admit("a", token(5)).is_err(),
            "what passed once does not pass for ever"
        );
    }

    #[test]
    fn a_refused_token_changes_nothing() {
        let gate = Gate::new();
        gate.admit("a", token(5)).unwrap();
        let _ = gate.admit("a", token(1));
        assert!(gate.admit("a", token(4)).is_err());
        assert_eq!(gate.admit("a", token(5)), Ok(()));
    }

    #[test]
    fn resources_do_not_know_each_other() {
        let gate = Gate::new();
        gate.admit("a", token(9)).unwrap();
        assert_eq!(gate.admit("b", token(1)), Ok(()));
    }

    #[test]
    fn the_error_says_the_resource_and_both_tokens() {
        let gate = Gate::default();
        gate.admit("invoice:42", token(9)).unwrap();
        let stale = gate.admit("invoice:42", token(7)).unwrap_err();
        assert_eq!((stale.token, stale.newest), (token(7), token(9)));
        let text = stale.to_string();
        assert!(
            text.contains("invoice:42") && text.contains('7') && text.contains('9'),
            "{text}"
        );
    }

    #[test]
    fn of_many_threads_the_newest_token_stays() {
        let gate = Gate::new();
        std::thread::scope(|scope| {
            for start in 0..4_u64 {
                let gate = &gate;
                scope.spawn(move || {
                    let mut last = None;
                    for number in (start..4_000).step_by(4) {
                        if gate.admit("a", token(number)).is_ok() {
                            assert!(last < Some(number));
                            last = Some(number);
                        }
                    }
                });
            }
        });
        assert!(gate.admit("a", token(3_998)).is_err());
        assert_eq!(gate.admit("a", token(3_999)), Ok(()));
    }

    #[test]
    fn a_full_gate_forgets_the_oldest_and_lets_nothing_older_in() {
        for room in [1, 8, 1000, 1200, 4096, 10_000] {
            let gate = Gate::with_room(room);
            for number in 0..5 * room as u64 {
                gate.admit(&format!("r{number}"), token(1000 + number))
                    .unwrap();
            }
            let known: usize = gate
                .shards
                .iter()
                .map(|shard| shard.0.lock().unwrap().newest.len())
                .sum();
            assert!(known <= room + room / 4, "{known} of {room}");
            let newest = 5 * room as u64 - 1;
            let of_the_newest = format!("r{newest}");
            assert!(gate.admit(&of_the_newest, token(999 + newest)).is_err());
            assert_eq!(gate.admit(&of_the_newest, token(1000 + newest)), Ok(()));
            // Forgotten: what is older than it is refused for whatever is not known.
            let stale = gate.admit("r0", token(999)).unwrap_err();
            assert!(
                stale.forgotten && stale.to_string().contains("more room"),
                "{stale}"
            );
            assert_eq!(gate.admit("new", token(10_000_000)), Ok(()));
        }
    }

    #[test]
    fn what_there_is_room_for_is_not_forgotten() {
        for room in [1, 1024, 1200, 9600] {
            for _ in 0..50 {
                let gate = Gate::with_room(room);
                for number in 0..room as u64 {
                    // From the newest on: the floor of one that was forgotten would refuse the next.
                    let token = token(1_000_000 - number);
                    assert_eq!(gate.admit(&number.to_string(), token), Ok(()), "{room}");
                }
                for shard in &gate.shards {
                    assert_eq!(shard.0.lock().unwrap().floor, None, "{room}");
                }
            }
        }
    }

    #[test]
    fn a_room_is_never_exceeded_by_more_than_a_quarter() {
        let rooms = (1..100_000).chain((17..40).map(|bits| 1 << bits));
        for room in rooms {
            let gate_shards = (room / PER_SHARD).clamp(1, SHARDS);
            let most = share(room, gate_shards) * gate_shards;
            assert!((room..=room + room / 4).contains(&most), "{most} of {room}");
        }
    }

    /// Whatever was asked before, of whatever room: a token below one that was admitted for the
    /// resource is refused; and where nothing was forgotten nothing else is.
    #[test]
    fn it_never_admits_what_a_boundless_one_refuses() {
        use proptest::prelude::*;
        let asked = proptest::collection::vec((0..12_u8, 0..40_u64), 0..200);
        proptest!(|(asked in asked, room in 1..16_usize)| {
            let gate = Gate::with_room(room);
            let mut model = std::collections::HashMap::<u8, u64>::new();
            for (resource, number) in asked {
                let newest = model.get(&resource).copied().unwrap_or(0);
                let admitted = gate.admit(&resource.to_string(), token(number));
                match admitted {
                    Ok(()) => {
                        prop_assert!(number >= newest);
                        model.insert(resource, number);
                    }
                    Err(stale) => prop_assert!(number < newest || stale.forgotten && room < 12),
                }
            }
        });
    }

    /// The same for a gate of several shards, with more resources than it has room for and with fewer.
    #[test]
    fn a_large_one_never_admits_what_a_boundless_one_refuses() {
        use proptest::prelude::*;
        let tokens = prop_oneof![0..2_000_u64, 0..=FencingToken::MAX];
        let asked = proptest::collection::vec((0..4_000_u16, tokens), 0..10_000);
        let config = ProptestConfig {
            max_shrink_iters: 2_000,
            ..ProptestConfig::with_cases(24)
        };
        proptest!(config, |(asked in asked, room in prop_oneof![1_024..3_000_usize, 4_000..10_000_usize])| {
            let gate = Gate::with_room(room);
            let mut model = std::collections::HashMap::<u16, u64>::new();
            for (resource, number) in asked {
                let newest = model.get(&resource).copied().unwrap_or(0);
                match gate.admit(&resource.to_string(), token(number)) {
                    Ok(()) => {
                        prop_assert!(number >= newest);
                        model.insert(resource, number);
                    }
                    Err(stale) => prop_assert!(number < newest || stale.forgotten && room < 4_000),
                }
            }
        });
    }

    #[test]
    fn it_can_be_shared_between_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<Gate>();
        shared::<StaleToken>();
    }
}

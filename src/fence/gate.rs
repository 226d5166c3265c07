//! A fence in this process: the newest token of every resource, in memory.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{Mutex, PoisonError},
};

use hashbrown::HashTable;

use super::StaleToken;
use crate::FencingToken;

/// The default number of resources.
const ROOM: usize = 1 << 16;
/// With this many shards, threads that ask about different resources seldom wait for each other.
const SHARDS: usize = 16;
/// A shard holds at least this many resources. The room that a shard needs beyond its share grows with the square root
/// of the share. With fewer resources it would be more than a quarter.
const PER_SHARD: usize = 600;

/// Remembers the newest token of every resource, and refuses an older one.
///
/// Put it where all writes to a resource pass, such as in the service that owns the resource, or in the task that
/// writes the file. It is `Send + Sync`; share it by reference or in an `Arc`. For data in Redis or Postgres use
/// [`fence::redis`](super::redis) or [`fence::postgres`](super::postgres), which check the token in the same step as
/// the write.
///
/// Once a token was admitted for a resource, no smaller one is ever admitted.
///
/// - **Its memory is bounded.** It holds 65,536 resources, or as many as [`with_room`](Self::with_room) says, and at
///   most a quarter more. A full gate forgets the resources with the oldest tokens. For a resource that it does not
///   know it then refuses any token that is older than the forgotten ones. So it may refuse a token that is not stale,
///   but it never admits one that is older than an admitted one.
/// - **Tokens from elsewhere need a gate of their own.** The tokens of all names follow the clock in µs. So a token is
///   refused without being stale only if its holder has held the lock since before everything that the gate still
///   knows. Tokens with other numbers (Consul's, or your own) belong in another gate, with room for all their
///   resources.
/// - **It does not make the write.** Between [`admit`](Self::admit) and a write, a newer holder may be admitted and
///   write first. If that matters, keep one lock around both, or let the store itself compare tokens in the statement
///   that writes.
/// - **It does not reach beyond this process, and ends with it.** After a restart an old token passes until a newer one
///   has been seen. If that matters, keep the newest token beside the data it protects.
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
    /// How many resources one shard holds before it forgets some.
    share: usize,
}

/// It has a cache line of its own, because other threads lock its neighbours.
#[repr(align(64))]
#[derive(Default)]
struct Shard(Mutex<Marks>);

#[derive(Default)]
struct Marks {
    newest: HashTable<Mark>,
    /// The newest token of all resources that were forgotten.
    floor: Option<FencingToken>,
}

struct Mark {
    resource: Box<str>,
    token: FencingToken,
}

impl Gate {
    /// Makes a gate that has seen nothing: the first token of a resource always passes.
    pub fn new() -> Self {
        Self::with_room(ROOM)
    }

    /// Makes a gate that holds at least `resources` resources, and at least one, before it forgets any. From 1,200 on
    /// it may hold up to a quarter more.
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

    /// Lets `token` through to `resource` unless it has seen a newer one. An equal token passes.
    ///
    /// # Errors
    /// [`StaleToken`]: do not write. The holder of that token has lost its lock, and somebody else has written since.
    /// Or the gate was full and can no longer tell.
    pub fn admit(&self, resource: &str, token: FencingToken) -> Result<(), StaleToken> {
        let hash = self.hasher.hash_one(resource);
        // The table uses the lowest and the highest bits of the hash. These are from its middle.
        let index = (hash >> 32) as usize % self.shards.len().max(1);
        let Some(Shard(marks)) = self.shards.get(index) else {
            // There is always a shard. Without one, refuse.
            return Err(StaleToken::new(resource, token, token, true));
        };
        // A panic elsewhere cannot leave half an entry behind, because an entry is one insertion.
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

/// The most of `room` resources that fall to one shard. Hashing spreads them unevenly: fewer than one gate in ten
/// million exceeds six standard deviations above the mean.
fn share(room: usize, shards: usize) -> usize {
    let mean = room.div_ceil(shards);
    match shards {
        1 => room,
        _ => mean.saturating_add(mean.saturating_mul(36).isqrt() + 1),
    }
}

impl Marks {
    /// Forgets an eighth of the resources, so that it is seldom done.
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

#[cfg(test)]
mod tests;

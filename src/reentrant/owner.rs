//! Who may lock again what it holds.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError, Weak},
};

use super::place::Place;
use crate::engine::Engine;

/// Who holds a [`ReentrantMutex`](crate::ReentrantMutex): may lock again what it holds.
///
/// An owner is a value that you pass along, not a thread or a task. Its clones are the same owner, on any task and
/// any thread of this process. Two owners that were made by [`new`](Self::new) never share a lock. Make one for
/// each unit of work that may lock a name twice: a request, a job.
///
/// It keeps nothing for names that it neither holds nor waits for. Dropping it releases nothing: each
/// [`Lease`](crate::Lease) holds on by itself.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
/// use quorate::Owner;
/// let mutex = quorate::Quorum::in_memory(3).reentrant_mutex("account:7");
/// let (request, other) = (Owner::new(), Owner::new());
///
/// let lease = mutex.lock(&request).await?;
/// let owner = request.clone(); // carried into another task, it is the same owner
/// let inner = tokio::spawn(mutex.try_lock(&owner)).await.expect("it does not panic")?;
/// assert_eq!(inner.map(|lease| lease.token()), Some(lease.token()));
/// assert!(mutex.try_lock(&other).await?.is_none(), "another owner waits");
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct Owner(Arc<Places>);

/// The places where an owner holds or waits.
#[derive(Default)]
pub(super) struct Places(StdMutex<HashMap<Key, Weak<Place>>>);

/// A name, and the address of the engine that locks it. A place keeps its engine, so the address is nobody
/// else's while the key is in the map.
type Key = (usize, Arc<str>);

impl Owner {
    /// A new owner, which holds nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where this owner locks this name of a quorum.
    pub(super) fn place(&self, engine: &Engine, name: &Arc<str>) -> Arc<Place> {
        let key = (engine.address(), Arc::clone(name));
        let mut places = self.0.lock();
        if let Some(place) = places.get(&key).and_then(Weak::upgrade) {
            return place;
        }
        let place = Place::new(Arc::downgrade(&self.0), engine.clone(), Arc::clone(name));
        places.insert(key, Arc::downgrade(&place));
        place
    }
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Weak<Place>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place ends. By now there may be another one for the same name.
    pub(super) fn remove(&self, key: &Key, place: *const Place) {
        let mut places = self.lock();
        if places.get(key).is_some_and(|weak| weak.as_ptr() == place) {
            places.remove(key);
        }
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner")
            .field("names", &self.0.lock().len())
            .finish()
    }
}

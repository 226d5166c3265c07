//! One name, shared by all callers in this process: the order of their turns, and one query that waits at Consul for
//! changes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{
    select,
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, sleep},
};

use super::{
    agent::Agent,
    fault::Fault,
    record::{Foreign, Form, View},
    wire::Pair,
};

/// How many waiters for the same number of permits have an entry in Consul at a time. The next one is there already
/// when the first is served.
const LOCK_TURNS: usize = 2;
const SEMAPHORE_TURNS: usize = 4;
/// The rest after a failed query. It doubles each time.
const FIRST_REST: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_secs(5);
/// The rest between two looks, if too many queries wait already.
const POLL: Duration = Duration::from_secs(2);

/// All keys of a name at one index, or why they are not known.
pub(super) type Seen = Option<Result<Arc<Keys>, Fault>>;

/// The keys of a name, as Consul returned them.
#[derive(Debug)]
pub(super) struct Keys {
    pairs: Vec<Pair>,
    index: u64,
}

/// The names that are asked for in this process.
pub(super) struct Places {
    agent: Arc<Agent>,
    all: Mutex<HashMap<Arc<str>, Weak<Place>>>,
}

impl Places {
    pub(super) fn new(agent: &Arc<Agent>) -> Self {
        Self {
            agent: Arc::clone(agent),
            all: Mutex::default(),
        }
    }

    /// The shared state of a name. `folder` is the beginning of its keys, with the slash.
    pub(super) fn at(&self, folder: &str) -> Arc<Place> {
        let mut places = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = places.get(folder).and_then(Weak::upgrade) {
            return place;
        }
        // Names come and go, so unused ones are removed when the map is full.
        if places.len() == places.capacity() {
            places.retain(|_, place| place.strong_count() > 0);
        }
        let place = Arc::new(Place::new(&self.agent, folder));
        places.insert(folder.into(), Arc::downgrade(&place));
        place
    }
}

/// One name.
pub(super) struct Place {
    agent: Arc<Agent>,
    /// The beginning of its keys, with the slash.
    pub(super) folder: Arc<str>,
    /// Waiters wait for their turn here, in order. Each number of permits has turns of its own, because its waiters may
    /// be served while others cannot be.
    turns: Mutex<HashMap<(Form, u32), Arc<Semaphore>>>,
    watcher: Mutex<Option<watch::Sender<Seen>>>,
}

impl Place {
    fn new(agent: &Arc<Agent>, folder: &str) -> Self {
        Self {
            agent: Arc::clone(agent),
            folder: folder.into(),
            turns: Mutex::default(),
            watcher: Mutex::default(),
        }
    }

    /// Waits for the turn of a waiter for this many permits, among the waiters of this process.
    pub(super) async fn turn(&self, form: Form, count: u32) -> Option<OwnedSemaphorePermit> {
        let turns = self.turns(form, count);
        // The semaphore is never closed.
        turns.acquire_owned().await.ok()
    }

    fn turns(&self, form: Form, count: u32) -> Arc<Semaphore> {
        let mut all = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = all.entry((form, count)).or_insert_with(|| {
            let at_once = match form {
                Form::Lock => LOCK_TURNS,
                Form::Semaphore => SEMAPHORE_TURNS,
            };
            Arc::new(Semaphore::new(at_once))
        });
        Arc::clone(turns)
    }

    /// Returns a receiver of every change from now on, which begins with the present keys.
    pub(super) fn watch(self: &Arc<Self>) -> watch::Receiver<Seen> {
        let mut watcher = self.watcher();
        if let Some(watcher) = &*watcher {
            let mut receiver = watcher.subscribe();
            // The watcher's last news is new to this receiver.
            receiver.mark_changed();
            return receiver;
        }
        let (sender, receiver) = watch::channel(None);
        *watcher = Some(sender.clone());
        drop(watcher);
        let place = Arc::clone(self);
        self.agent.spawn(async move {
            let over = place.agent.over();
            select! {
                () = place.keep_watching(&sender) => {}
                () = over => {}
            }
        });
        receiver
    }

    /// The last news of the watcher, if there is one.
    pub(super) fn known(&self) -> Option<Arc<Keys>> {
        let watcher = self.watcher();
        let seen = watcher.as_ref()?.borrow();
        seen.as_ref()?.as_ref().ok().cloned()
    }

    /// Watches until nobody listens.
    async fn keep_watching(&self, sender: &watch::Sender<Seen>) {
        loop {
            select! {
                () = sender.closed() => {}
                () = self.tell(sender) => {}
            }
            let mut watcher = self.watcher();
            // Nobody subscribes while it is locked.
            if sender.receiver_count() == 0 {
                watcher.take();
                return;
            }
        }
    }

    /// Sends the keys of the name, for ever.
    async fn tell(&self, sender: &watch::Sender<Seen>) {
        let (mut last, mut rest) = (None, FIRST_REST);
        loop {
            let permit = self.agent.queries.try_acquire().ok();
            // Consul would not wait with an index of 0.
            let since = last.map(|last: u64| last.max(1));
            let waits = since.filter(|_| permit.is_some());
            let asked = Instant::now();
            let found = self.agent.http.list(&self.folder, waits).await;
            drop(permit);
            match found {
                Ok((pairs, index)) => {
                    let (is_new, polls) = (last != Some(index), since.is_some() && waits.is_none());
                    (last, rest) = (Some(index), FIRST_REST);
                    if is_new {
                        sender.send_replace(Some(Ok(Arc::new(Keys { pairs, index }))));
                    }
                    if polls {
                        sleep(POLL).await;
                    } else if !is_new && asked.elapsed() < FIRST_REST {
                        // This server does not hold queries back.
                        sleep(LONGEST_REST).await;
                    }
                }
                Err(fault) => {
                    sender.send_replace(Some(Err(fault)));
                    sleep(rest).await;
                    (last, rest) = (None, (rest * 2).min(LONGEST_REST));
                }
            }
        }
    }

    fn watcher(&self) -> MutexGuard<'_, Option<watch::Sender<Seen>>> {
        self.watcher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keys {
    pub(super) fn index(&self) -> u64 {
        self.index
    }

    /// A view of these keys, for a lock or a semaphore.
    pub(super) fn view(&self, form: Form, folder: &str) -> Result<View, Foreign> {
        View::read(form, folder, &self.pairs, self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::integrations::consul::Consul;

    fn place() -> Arc<Place> {
        let nowhere = Consul::builder().url("http://127.0.0.1:1");
        nowhere.connect_lazy().unwrap().0.places.at("jobs/a/")
    }

    #[tokio::test]
    async fn waiters_for_another_number_of_permits_have_turns_of_their_own() {
        let place = place();
        let turns = |count| place.turns(Form::Semaphore, count);
        let three = turns(3).try_acquire_many_owned(4).unwrap();
        assert!(turns(3).try_acquire().is_err(), "four have their turn");
        assert!(turns(1).try_acquire().is_ok());
        drop(three);
        assert!(turns(3).try_acquire().is_ok());
        assert_eq!(place.turns(Form::Lock, 1).available_permits(), LOCK_TURNS);
    }
}

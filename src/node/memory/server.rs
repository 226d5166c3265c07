//! An in-process master.

mod connection;
mod process;

#[cfg(any(test, feature = "test-util"))]
use std::task::Waker;
use std::{
    fmt,
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use self::{
    connection::MemoryConnection,
    process::{Process, State},
};
use super::store::Store;
use crate::{
    base::{clock::Clock as _, rules::Rules},
    node::{
        Command, Connection, Dial, DialError, Node,
        admission::{self, Admit, Handshake, Identity, Mode, Terms, Vouch},
        answer::Answer,
    },
};

/// A master that lives in this process, for demos, doctests and users' own tests. It obeys the same commands as a real
/// server, on tokio's clock, so a paused test clock moves it too.
///
/// Clones are the same master. New masters that are given to a builder vote at once: they were made in this process, so
/// nobody has used them. A master that was [restarted](Self::restart_empty) before, or that joins others that are in
/// use, is in quarantine first, as a server would be. [`Quorum::bootstrap_forced`](crate::Quorum::bootstrap_forced)
/// ends that. Call it only if no lease is left.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
/// use quorate::{MemoryNode, Quorum};
/// let nodes = [MemoryNode::new(), MemoryNode::new(), MemoryNode::new()];
/// let quorum = Quorum::builder().nodes(&nodes).connect().await?;
/// nodes[0].stop();
/// let lease = quorum.mutex("a").lock().await?; // two of three are enough
/// lease.release().await?;
///
/// nodes[0].restart_empty(); // it has forgotten all, and is in quarantine
/// nodes[1].delay(std::time::Duration::from_secs(1)); // longer than the node timeout
/// assert!(quorum.mutex("a").try_lock().await.is_err(), "only one votes");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryNode {
    id: Arc<str>,
    process: Arc<Process>,
}

/// In effect for ever, but short enough to be added to the current time.
const LONGEST_DELAY: Duration = Duration::from_secs(365 * 24 * 3600);

impl MemoryNode {
    /// A new, empty master.
    pub fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let id = format!("memory:{}", LAST.fetch_add(1, Relaxed) + 1);
        let process = Process::new(Store::new(Identity::master(run_of(&id)), Rules::ALL));
        Self {
            id: id.into(),
            process: Arc::new(process),
        }
    }

    /// Stops the master: connections break, and it does not answer until [`start`](Self::start). It keeps its memory,
    /// and its keys go on expiring.
    pub fn stop(&self) {
        let mut server = self.lock();
        server.up = false;
        server.break_connections();
    }

    /// Makes it answer again.
    pub fn start(&self) {
        self.lock().up = true;
    }

    /// Restarts the master at once without its memory: connections break, and locks and counters are gone. A stopped
    /// master answers again.
    ///
    /// As with a real server that restarted, nobody knows what it has granted before. So it answers but does not vote
    /// ([`NodeState::Quarantined`](crate::NodeState::Quarantined)) until its quarantine is over. That takes 35.3 s by
    /// default, by the clocks of the clients that watch it. A test that must not wait for that can sleep with tokio's
    /// clock paused, or call [`Quorum::bootstrap_forced`](crate::Quorum::bootstrap_forced) if no lease is left.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
    /// # use quorate::{MemoryNode, Quorum};
    /// let nodes = [MemoryNode::new(), MemoryNode::new(), MemoryNode::new()];
    /// let quorum = Quorum::builder().nodes(&nodes).connect().await?;
    /// quorum.mutex("a").lock().await?.release().await?;
    /// for node in &nodes {
    ///     node.restart_empty(); // a power cut
    /// }
    /// quorum.bootstrap_forced().await?; // nobody holds a lock
    /// assert!(quorum.mutex("a").try_lock().await?.is_some());
    /// # Ok(()) }
    /// ```
    pub fn restart_empty(&self) {
        let mut server = self.lock();
        server.break_connections();
        server.up = true;
        let run = format!("{}r{}", run_of(&self.id), server.life);
        server.store.restart(run);
    }

    /// Delays by `d` everything that the master sends from now on: answers, and pushes to waiters. Requests still take
    /// effect at once. The time is tokio's. Messages that are already on their way keep their time of arrival, and the
    /// order on a connection never changes. Zero, the initial value, ends the delay.
    ///
    /// With a delay longer than the node timeout its votes come too late, and it is
    /// [`NodeState::Stalled`](crate::NodeState::Stalled) while a request is unanswered. With a delay longer than both
    /// four node timeouts and 2 s it is dialled again and again.
    pub fn delay(&self, d: Duration) {
        self.lock().delay = d.min(LONGEST_DELAY);
    }

    pub(crate) fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Returns true if no client has ever reached it and it has never stopped. Then it has granted nothing.
    pub(crate) fn is_new(&self) -> bool {
        self.lock().is_new()
    }

    /// Lets it vote at once, as one of `masters` masters on this list.
    pub(crate) fn admit(&self, masters: u64, list: &str, terms: Terms) {
        let mut server = self.lock();
        let time = server.clock.wall_us();
        let nonce = run_of(&self.id);
        admit(&mut server.store, masters, list, terms, nonce, time);
    }

    /// For tests: changes the store directly, without a client, at the node's TIME.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn with_store<T>(&self, act: impl FnOnce(&mut Store, u64) -> T) -> T {
        let mut server = self.lock();
        let time = server.clock.wall_us();
        let done = act(&mut server.store, time);
        let (due, mut woken) = (server.due(), Vec::new());
        server.hand_out(due, &mut woken);
        drop(server);
        woken.into_iter().for_each(Waker::wake);
        done
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.process.lock()
    }

    fn connect(&self, channel: &Arc<str>) -> Result<Box<dyn Connection>, DialError> {
        let mut server = self.lock();
        if !server.up {
            return Err(DialError::Unreachable(
                "the in-process node is stopped".into(),
            ));
        }
        let client_id = server.connect(channel);
        let process = Arc::clone(&self.process);
        let hears = !channel.is_empty();
        Ok(Box::new(MemoryConnection::new(process, client_id, hears)))
    }
}

/// The id of a node's first run.
fn run_of(id: &str) -> String {
    id.replace(':', "")
}

/// A handshake and an ADMIT, as a forced bootstrap sends them.
pub(crate) fn admit(
    store: &mut Store,
    masters: u64,
    list: &str,
    terms: Terms,
    nonce: String,
    time: u64,
) {
    let hello = Handshake {
        masters,
        list: list.to_owned(),
        terms,
        vouch: Vouch::Majority,
        used: true,
        known: None,
        witnessed: 0,
        nonce,
    };
    let met = store.apply(
        &Command::Admission(admission::Command::Handshake(hello)),
        "",
        time,
    );
    if let Ok(Answer::Admission(admission::Reply::Met(meeting))) = met
        && let Some(record) = meeting.stored.record()
    {
        let admit = Admit {
            masters,
            list: list.to_owned(),
            run: record.run.clone(),
            id: record.id.clone(),
            terms,
            witnessed: terms.history(),
            mode: Mode::Forced,
        };
        let _ = store.apply(
            &Command::Admission(admission::Command::Admit(admit)),
            "",
            time,
        );
    }
}

impl Default for MemoryNode {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryNode").field(&self.id).finish()
    }
}

impl Node for MemoryNode {
    fn id(&self) -> &str {
        &self.id
    }

    fn dial(&self, channel: &Arc<str>) -> Dial {
        let (node, channel) = (self.clone(), Arc::clone(channel));
        Box::pin(async move { node.connect(&channel) })
    }
}

#[cfg(test)]
mod tests;

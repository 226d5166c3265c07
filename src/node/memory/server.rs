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

/// A master that lives in this process: the embedded default of demos, doctests and users' own
/// tests. It obeys the same commands as a real server, on tokio's clock, so that a paused test clock
/// moves it too.
///
/// Clones are the same master. New ones that are given to a builder vote at once: they were made in this process, so nobody has
/// used them. One that was [restarted](Self::restart_empty) before, or that joins others that are in use, is in quarantine first, as a server
/// would be. [`Quorum::bootstrap_forced`](crate::Quorum::bootstrap_forced) ends that, where no lease is left.
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

/// For ever, and yet an instant that can be reckoned.
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

    /// Dies: connections break, and nobody answers until [`start`](Self::start). Its memory is kept,
    /// and its keys go on expiring.
    pub fn stop(&self) {
        let mut server = self.lock();
        server.up = false;
        server.break_connections();
    }

    /// Answers again.
    pub fn start(&self) {
        self.lock().up = true;
    }

    /// Restarts at once, without its memory: connections break, and locks and counters are gone. A stopped one
    /// answers again. As a real server that restarted it is another run of which nobody knows what it has
    /// granted, so it answers and does not vote ([`NodeState::Quarantined`](crate::NodeState::Quarantined)) until
    /// its quarantine is over, 35.3 s by default, by the clocks of the clients that watch it. A test that does
    /// not want to wait for that sleeps with tokio's clock paused, or calls
    /// [`Quorum::bootstrap_forced`](crate::Quorum::bootstrap_forced) if no lease is left.
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

    /// From now on whatever it says comes `d` later, by tokio's clock; zero, as at first, ends it: answers, and what
    /// it tells those who wait for a lock. What is asked takes effect at once all the same. What is already on its
    /// way keeps its time, and nothing overtakes anything on the same connection.
    ///
    /// With more than the node timeout its votes come too late, and while a request is unanswered it is
    /// [`NodeState::Stalled`](crate::NodeState::Stalled). With more than four node timeouts and more than 2 s
    /// it is dialled anew again and again.
    pub fn delay(&self, d: Duration) {
        self.lock().delay = d.min(LONGEST_DELAY);
    }

    pub(crate) fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Returns true if no client has ever reached it, and it has never stopped: then it has granted nothing.
    pub(crate) fn is_new(&self) -> bool {
        self.lock().is_new()
    }

    /// Lets it vote at once, as one of `masters` on this list.
    pub(crate) fn admit(&self, masters: u64, list: &str, terms: Terms) {
        let mut server = self.lock();
        let time = server.clock.wall_us();
        let nonce = run_of(&self.id);
        admit(&mut server.store, masters, list, terms, nonce, time);
    }

    /// For tests: what is done behind its clients' backs, at its TIME.
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

/// The first run of a node.
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

//! An in-process master.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

use super::store::{Identity, Store};
use crate::{
    clock::{Clock, TokioClock},
    node::{
        Answer, Batch, Connection, Dial, DialError, Disconnected, Guard, Node,
        admission::{Admit, Handshake, Mode, Terms, Vouch},
        command::{Command, Reply},
    },
    rules::Rules,
};

/// A master that lives in this process: the embedded default of demos, doctests and users' own
/// tests. It obeys the same commands as a real server, on tokio's clock, so that a paused test clock
/// moves it too.
///
/// Clones are the same master. A new one has to be admitted like any new server
/// ([`Quorum::bootstrap`](crate::Quorum::bootstrap)); [`Quorum::in_memory`](crate::Quorum::in_memory)
/// has done that already.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
/// use quorate::{MemoryNode, Quorum};
/// let nodes = [MemoryNode::new(), MemoryNode::new(), MemoryNode::new()];
/// let quorum = Quorum::builder().nodes(&nodes).connect().await?;
/// quorum.bootstrap_forced().await?; // nobody else has ever used them
/// nodes[0].stop();
/// let lease = quorum.mutex("a").lock().await?; // two of three are enough
/// # drop(lease); Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryNode {
    id: Arc<str>,
    server: Arc<Mutex<Server>>,
}

struct Server {
    store: Store,
    clock: TokioClock,
    up: bool,
    connections: u64,
    /// Counts stops: a connection of an earlier life is over.
    life: u64,
    /// By connection: who waits for an answer on it.
    waiting: BTreeMap<u64, Waker>,
}

impl MemoryNode {
    /// A new, empty master.
    pub fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Relaxed) + 1;
        let server = Server {
            store: Store::new(Identity::master(format!("memory{number}")), Rules::ALL),
            clock: TokioClock::new(),
            up: true,
            connections: 0,
            life: 0,
            waiting: BTreeMap::new(),
        };
        Self {
            id: format!("memory:{number}").into(),
            server: Arc::new(Mutex::new(server)),
        }
    }

    /// Dies: connections break, and nobody answers until [`start`](Self::start). Its memory is kept,
    /// and its keys go on expiring.
    pub fn stop(&self) {
        let mut server = self.lock();
        server.up = false;
        server.life += 1;
        for waker in std::mem::take(&mut server.waiting).into_values() {
            waker.wake();
        }
    }

    /// Answers again.
    pub fn start(&self) {
        self.lock().up = true;
    }

    pub(crate) fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Lets it vote at once, as one of so many masters of this list.
    pub(crate) fn admit(&self, masters: u64, list: &str, terms: Terms) {
        let mut server = self.lock();
        let time = server.clock.wall_us();
        let nonce = self.id.replace(':', "");
        admit(&mut server.store, masters, list, terms, nonce, time);
    }

    fn lock(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(&self) -> Result<Box<dyn Connection>, DialError> {
        let mut server = self.lock();
        if !server.up {
            return Err(DialError::Unreachable(
                "the in-process node is stopped".into(),
            ));
        }
        server.connections += 1;
        Ok(Box::new(MemoryConnection {
            node: self.clone(),
            client_id: server.connections,
            life: server.life,
            answers: VecDeque::new(),
        }))
    }
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
    let met = store.apply(&Command::Handshake(hello), "", time);
    if let Ok(Reply::Met(meeting)) = met
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
        let _ = store.apply(&Command::Admit(admit), "", time);
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

    fn dial(&self) -> Dial {
        let node = self.clone();
        Box::pin(async move { node.connect() })
    }
}

/// A connection: a command takes effect when it is sent.
struct MemoryConnection {
    node: MemoryNode,
    client_id: u64,
    life: u64,
    answers: VecDeque<Answer>,
}

impl Connection for MemoryConnection {
    fn client_id(&self) -> u64 {
        self.client_id
    }

    fn note(&self) -> Option<&str> {
        None
    }

    fn send(&mut self, batch: Arc<Batch>, guard: Arc<Guard>) {
        let mut server = self.node.lock();
        if server.life != self.life {
            return;
        }
        let time = server.clock.wall_us();
        for command in batch.commands() {
            let answer = server.store.apply(command, guard.as_str(), time);
            self.answers.push_back(answer);
        }
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Disconnected>> {
        Poll::Ready(Ok(()))
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answer, Disconnected>> {
        let mut server = self.node.lock();
        if server.life != self.life {
            return Poll::Ready(Err(Disconnected("the in-process node was stopped".into())));
        }
        if let Some(answer) = self.answers.pop_front() {
            return Poll::Ready(Ok(answer));
        }
        server.waiting.insert(self.client_id, cx.waker().clone());
        Poll::Pending
    }

    fn withdraw(&mut self) -> usize {
        0
    }
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        self.node.lock().waiting.remove(&self.client_id);
    }
}

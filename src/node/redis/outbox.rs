//! The unanswered operations of a connection, in order: how they are grouped into calls, and the bytes of the calls.
//!
//! A call is one operation with its own command, or many operations that one script carries out. A call is made when
//! the bytes before it have left, so that everything that waits by then goes together. It is undone if it is withdrawn
//! before any of its bytes have left. So the promises about an operation hold in a batch too.

use std::{collections::VecDeque, sync::Arc};

use super::encode::{self, Keys};
use crate::{
    base::shrink::Shrink as _,
    node::{Guard, Operation, batch, operation::Wire},
};

/// Calls are made until their bytes are about this many. All of them are offered to the stream together.
pub(super) const CHUNK: usize = 16 << 10;
/// The initial capacity of the queue, in operations.
const QUEUE: usize = 64;

/// It has no `Debug`, because its bytes may contain a password.
pub(super) struct Outbox {
    keys: Arc<Keys>,
    /// Everything that is not answered yet: first the operations that are in calls, then the others.
    queue: VecDeque<Queued>,
    calls: VecDeque<Call>,
    /// The number of operations in the queue that are in calls.
    called: usize,
    /// The bytes of the calls that were made last. They are copied together, because a write of many pieces costs more
    /// than the copy.
    bytes: Vec<u8>,
    /// The number of these bytes that have left.
    left: usize,
    /// The number of bytes that came before these.
    before: u64,
    /// From now on every operation goes alone.
    alone: bool,
}

enum Queued {
    /// An operation, and the guard for this node.
    Operation(Arc<Operation>, Arc<Guard>),
    /// Bytes to which no answer comes.
    Unanswered(Vec<u8>),
    /// AUTH. Its answer is not for the engine.
    Login(Vec<u8>),
}

/// A call: the number of operations in it, counted from the front of the queue, and its bytes.
#[derive(Debug)]
struct Call {
    operations: usize,
    /// The positions of its first byte and of the byte behind its last, among all bytes that ever leave.
    from: u64,
    to: u64,
}

/// The call that is answered next.
pub(super) enum Asked<'o> {
    /// One operation as its own call, to which this many replies belong.
    Alone(&'o Operation, usize),
    /// Many operations. They are the first of [`Outbox::operations`].
    Together(usize),
    /// AUTH.
    Login,
}

impl Outbox {
    pub(super) fn new(keys: Arc<Keys>) -> Self {
        Self {
            keys,
            queue: VecDeque::with_capacity(QUEUE),
            calls: VecDeque::new(),
            called: 0,
            bytes: Vec::new(),
            left: 0,
            before: 0,
            alone: !batch::are_made(),
        }
    }

    // ---- what is to be sent -----------------------------------------------------------------

    pub(super) fn push(&mut self, operation: Arc<Operation>, guard: Arc<Guard>) {
        self.queue.push_back(Queued::Operation(operation, guard));
    }

    /// Adds bytes to which no answer comes.
    pub(super) fn push_unanswered(&mut self, bytes: Vec<u8>) {
        self.queue.push_back(Queued::Unanswered(bytes));
    }

    /// Adds AUTH behind everything that was sent.
    pub(crate) fn push_login(&mut self, bytes: Vec<u8>) {
        self.queue.push_back(Queued::Login(bytes));
    }

    /// The bytes to offer to the stream. Empty if all have left.
    pub(super) fn unsent(&mut self) -> &[u8] {
        if self.left == self.bytes.len() {
            self.before += self.left as u64;
            self.left = 0;
            self.bytes.clear();
            while self.bytes.len() < CHUNK && self.called < self.queue.len() {
                self.call();
            }
        }
        self.bytes.get(self.left..).unwrap_or_default()
    }

    /// The next `bytes` bytes have left.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.left = self.left.saturating_add(bytes).min(self.bytes.len());
    }

    /// Takes back the operations of which no byte has left. These are the last ones. Returns how many there were.
    pub(super) fn withdraw(&mut self) -> usize {
        let left = self.before + self.left as u64;
        while let Some(call) = self.calls.back().filter(|call| call.from >= left) {
            self.called -= call.operations;
            let keep = call.from.saturating_sub(self.before);
            self.bytes
                .truncate(usize::try_from(keep).unwrap_or(usize::MAX));
            self.calls.pop_back();
        }
        let unsent = self.queue.split_off(self.called.min(self.queue.len()));
        let operation = |queued: &Queued| matches!(queued, Queued::Operation(..));
        let operations = unsent.iter().filter(|queued| operation(queued)).count();
        // A login stays, because nobody would ask for it again.
        let logins = unsent
            .into_iter()
            .filter(|queued| matches!(queued, Queued::Login(_)));
        self.queue.extend(logins);
        operations
    }

    /// Makes no more batches. The server's ACL permits this user some names only. It refuses a whole call for one name
    /// that it forbids.
    pub(super) fn send_alone(&mut self) {
        self.alone = true;
    }

    // ---- what is answered -------------------------------------------------------------------

    /// The call to which the next reply belongs. `None` if nothing that was asked can be answered yet. `received` is
    /// the number of replies to it that have come.
    pub(super) fn asked(&self, received: usize) -> Option<Asked<'_>> {
        let call = self.calls.front()?;
        let left = self.before + self.left as u64;
        let (has_begun, has_left) = (call.from < left, call.to <= left);
        if call.operations > 1 {
            return has_left.then_some(Asked::Together(call.operations));
        }
        let operation = match self.queue.front()? {
            Queued::Operation(operation, _) => operation,
            Queued::Login(_) => return has_left.then_some(Asked::Login),
            Queued::Unanswered(_) => return None,
        };
        let replies = self.wire(operation).replies;
        // The last of several replies may come only after the last byte has left.
        let may_come = has_left || has_begun && received + 1 < replies;
        may_come.then_some(Asked::Alone(operation, replies))
    }

    /// All unanswered operations, in order.
    pub(super) fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.queue.iter().map_while(Queued::operation)
    }

    /// The call that [`asked`](Self::asked) named is answered.
    pub(super) fn answered(&mut self) {
        if let Some(call) = self.calls.pop_front() {
            self.called -= call.operations;
            self.queue.drain(..call.operations.min(self.queue.len()));
        }
        self.queue.shrink_if_empty();
    }

    // ---- inside -----------------------------------------------------------------------------

    /// Makes one call of operations that are not in a call yet.
    fn call(&mut self) {
        let from = self.before + self.bytes.len() as u64;
        let waiting = self.queue.range(self.called..);
        let waiting = waiting.map_while(|queued| match queued {
            Queued::Operation(operation, guard) => Some((&**operation, guard)),
            Queued::Unanswered(_) | Queued::Login(_) => None,
        });
        let together = batch::first(
            waiting
                .clone()
                .map(|(operation, guard)| (operation, &**guard)),
        );
        let together = if self.alone {
            together.min(1)
        } else {
            together
        };
        let operations = together.max(1);
        let mut waiting = waiting.take(together);
        match (waiting.next(), self.queue.get(self.called)) {
            (Some((operation, guard)), _) if together == 1 => {
                let wire = operation.wire(|command| encode::wire(command, &self.keys));
                self.bytes.extend_from_slice(&wire.bytes);
                if wire.has_guard {
                    self.bytes.extend_from_slice(guard.wire(encode::guard));
                }
            }
            (Some((first, guard)), _) => {
                let rest = waiting.map(|(operation, _)| operation);
                let all = std::iter::once(first).chain(rest.clone());
                let commands = all.map(Operation::command);
                let bytes = first.batch(rest, || encode::batch(commands.clone(), &self.keys));
                self.bytes.extend_from_slice(&bytes);
                self.bytes.extend_from_slice(guard.wire(encode::guard));
            }
            (None, Some(Queued::Unanswered(bytes) | Queued::Login(bytes))) => {
                self.bytes.extend_from_slice(bytes)
            }
            (None, _) => return,
        }
        self.called += operations;
        let to = self.before + self.bytes.len() as u64;
        self.calls.push_back(Call {
            operations,
            from,
            to,
        });
    }

    fn wire<'o>(&self, operation: &'o Operation) -> &'o Wire {
        operation.wire(|command| encode::wire(command, &self.keys))
    }
}

impl Queued {
    fn operation(&self) -> Option<&Operation> {
        match self {
            Self::Operation(operation, _) => Some(operation),
            Self::Unanswered(_) | Self::Login(_) => None,
        }
    }
}

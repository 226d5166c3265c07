//! The client's side of one node: what may travel on its connection, and when (protocol §2). Pure:
//! time comes in, effects go out, so that the simulation runs this very code.
//!
//! The handshake comes first on every connection; a node that may not vote gets nothing but
//! handshakes and RELEASE; a node that leaves a request unanswered is stalled and asked for
//! nothing; a RELEASE is sent until it is answered or what it would free has expired.

mod duty;
mod fleet;
mod greeting;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use self::duty::Duties;
pub(crate) use self::duty::DutyId;
pub(crate) use self::fleet::Fleet;
use self::greeting::Standing;
pub(crate) use self::greeting::Witness;
use super::{
    Answer, DialError, Disconnected, Fault, Guard, Operation, Reply, admission, server,
    status::NodeState,
};
use crate::{
    Silence,
    clock::Tick,
    owner::{Chance, Entry},
    rules::Rule,
    settings::Settings,
};

const PING: Duration = Duration::from_secs(5);
const PING_AGAIN: Duration = Duration::from_secs(1);
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
/// The longest time between two tries to connect.
pub(crate) const LAST_BACKOFF: Duration = Duration::from_secs(5);
/// A connection is ended on the server only while it may still carry what takes a lock; more than this
/// many in doubt at once means a server that is gone, not one that is slow.
const MOST_DOUBTFUL: usize = 8;
/// At most this many requests are unanswered on a connection. More wait here, where they cost less and
/// can be taken back.
const MOST_IN_FLIGHT: usize = 65_536;

/// What the driver has to do to a node's connection.
#[derive(Debug)]
pub(crate) enum Effect {
    Dial(usize),
    /// The operation, and the guard of this node.
    Send(usize, Arc<Operation>, Arc<Guard>),
    Withdraw(usize),
    Close(usize),
}

/// One round: what the engine put to the nodes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RoundId(pub(crate) u64);

/// Which request of which round an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) round: RoundId,
    /// The round's own number for it.
    pub(crate) request: u8,
}

/// An answer on its way up.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) tag: Tag,
    pub(crate) node: usize,
    pub(crate) answer: Result<Reply, Silence>,
}

/// What a session needs of its surroundings for one step.
pub(crate) struct Step<'a> {
    pub(crate) now: Tick,
    pub(crate) settings: &'a Settings,
    pub(crate) fleet: &'a mut Fleet,
    pub(crate) chance: &'a mut Chance,
    pub(crate) effects: &'a mut VecDeque<Effect>,
    pub(crate) heard: &'a mut VecDeque<Heard>,
}

/// One node as this client knows it.
pub(crate) struct Session {
    node: usize,
    link: Link,
    client_id: u64,
    inflight: VecDeque<Sent>,
    /// How many of these, the first ones, have left.
    left: usize,
    /// What is in flight and not to be sent twice.
    under_way: UnderWay,
    /// Votes and RELEASEs behind [`MOST_IN_FLIGHT`], in order.
    waiting: VecDeque<Sent>,
    /// When the node last said anything on this connection.
    heard_at: Tick,
    /// It owes an answer since then, for longer than the node timeout. Set where time is looked at,
    /// never read off the clock: what has arrived by then was read before.
    stalled: Option<Tick>,
    next_hello: Option<Tick>,
    /// When the handshake was sent that was answered last on this connection.
    met_at: Option<Tick>,
    witness: Option<Witness>,
    /// What `<prefix>:open` says there while it votes.
    guard: Arc<Guard>,
    doubtful: Vec<Doubtful>,
    /// Nobody has said yet which run this connection leads to: what older connections left behind
    /// is cleaned up once that is known, and nothing is released before.
    unclean: bool,
    duties: Duties,
    backoff: Duration,
    note: Option<String>,
    changed: bool,
}

enum Link {
    Down {
        since: Tick,
        why: Arc<str>,
        refused: bool,
        dial_at: Tick,
    },
    Dialing {
        since: Tick,
        why: Option<(Arc<str>, bool)>,
    },
    /// Connected, the first handshake unread.
    Greeting,
    Met(Standing),
}

struct Sent {
    operation: Arc<Operation>,
    what: What,
    /// When it left; before that, when it was asked for.
    at: Tick,
    /// It is sent for the second time.
    again: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Vote(Tag),
    Release(DutyId),
    Hello,
    Load,
    Kill(u64),
}

#[derive(Default)]
struct UnderWay {
    hello: bool,
    load: bool,
    kills: BTreeSet<u64>,
}

impl UnderWay {
    fn begin(&mut self, what: What) {
        match what {
            What::Hello => self.hello = true,
            What::Load => self.load = true,
            What::Kill(client) => drop(self.kills.insert(client)),
            What::Vote(_) | What::Release(_) => {}
        }
    }

    fn end(&mut self, what: What) {
        match what {
            What::Hello => self.hello = false,
            What::Load => self.load = false,
            What::Kill(client) => drop(self.kills.remove(&client)),
            What::Vote(_) | What::Release(_) => {}
        }
    }
}

/// An older connection that may still carry what takes a lock.
struct Doubtful {
    client: u64,
    run: String,
}

impl Session {
    pub(crate) fn new(node: usize, now: Tick) -> Self {
        Self {
            node,
            link: Link::Down {
                since: now,
                why: "".into(),
                refused: false,
                dial_at: now,
            },
            client_id: 0,
            inflight: VecDeque::new(),
            left: 0,
            under_way: UnderWay::default(),
            waiting: VecDeque::new(),
            heard_at: now,
            stalled: None,
            next_hello: None,
            met_at: None,
            witness: None,
            guard: Arc::default(),
            doubtful: Vec::new(),
            unclean: true,
            duties: Duties::default(),
            backoff: FIRST_BACKOFF,
            note: None,
            changed: true,
        }
    }

    // ---- what the engine asks -------------------------------------------------------------

    /// Asks for a vote. Refused with the reason if the node may not be asked now.
    pub(crate) fn ask(
        &mut self,
        step: &mut Step<'_>,
        tag: Tag,
        operation: &Arc<Operation>,
    ) -> Result<(), Silence> {
        match self.state(step.now, step.fleet).silence() {
            None => {
                self.send(step, Arc::clone(operation), What::Vote(tag));
                Ok(())
            }
            Some(Silence::Quarantined(_))
                if operation.command().extends() && !step.settings.rules.hold(Rule::Guard) =>
            {
                self.send(step, Arc::clone(operation), What::Vote(tag));
                Ok(())
            }
            Some(silence) => Err(silence),
        }
    }

    /// Asks a node that answers but does not vote: bootstrap only.
    pub(crate) fn ask_unvoting(
        &mut self,
        step: &mut Step<'_>,
        tag: Tag,
        operation: &Arc<Operation>,
    ) -> bool {
        let met = matches!(self.link, Link::Met(_));
        if met {
            self.send(step, Arc::clone(operation), What::Vote(tag));
        }
        met
    }

    /// Takes back what may stand on the node: the RELEASE is sent until it is answered, or until `until`.
    pub(crate) fn release(
        &mut self,
        step: &mut Step<'_>,
        operation: &Arc<Operation>,
        until: Tick,
        tag: Option<Tag>,
    ) -> DutyId {
        let now = self.may_release();
        let id = self.duties.add(Arc::clone(operation), until, tag, now);
        if now {
            self.send_release(step, id);
        }
        id
    }

    /// Until when an answer may be waited for at least: until then no request to this node is late.
    /// None: it is stalled or owes nothing; or the RELEASE of this number could not be sent at once.
    pub(crate) fn patience(&self, release: Option<DutyId>, settings: &Settings) -> Option<Tick> {
        if self.stalled.is_some() || release.is_some_and(|id| !self.duties.is_prompt(id)) {
            return None;
        }
        self.late_at(settings)
    }

    /// When a node that does not vote is next dialled or met, if that is planned.
    pub(crate) fn next_try(&self) -> Option<Tick> {
        match &self.link {
            Link::Down { dial_at, .. } => Some(*dial_at),
            Link::Met(_) if self.stalled.is_none() => self.next_hello,
            Link::Dialing { .. } | Link::Greeting | Link::Met(_) => None,
        }
    }

    /// Why a request that is late was not answered; the number is that of a RELEASE, which is sent again
    /// after an error.
    pub(crate) fn why_late(&self, release: Option<DutyId>) -> Silence {
        let error = release.and_then(|id| self.duties.error(id));
        error.map_or(Silence::TimedOut, |error| Silence::Failed(error.clone()))
    }

    /// Whether a RELEASE is still to be confirmed.
    pub(crate) fn is_idle(&self) -> bool {
        self.duties.is_empty()
    }

    /// How many requests are unanswered.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn in_flight(&self) -> usize {
        self.inflight.len()
    }

    /// The handshake once more, now: somebody changed what the node says.
    pub(crate) fn meet_again(&mut self, step: &mut Step<'_>) {
        if matches!(self.link, Link::Met(_)) {
            self.hello(step);
        }
    }

    /// The quorum ends: a node in quarantine is told what was counted since its last handshake, or a
    /// fleet of short commands would never end it.
    pub(crate) fn part(&mut self, step: &mut Step<'_>) {
        if self.is_in_quarantine() && self.stalled.is_none() {
            self.hello(step);
        }
    }

    /// Whether a handshake is under way that brings a quarantine nearer to its end.
    pub(crate) fn is_parting(&self) -> bool {
        self.is_in_quarantine() && self.under_way.hello && self.stalled.is_none()
    }

    /// What was last read on the living connection, where the record is of this fleet.
    pub(crate) fn witness(&self) -> Option<&Witness> {
        self.witness
            .as_ref()
            .filter(|_| matches!(self.link, Link::Met(Standing::Fit)))
    }

    /// Whether the first handshake of this connection was answered.
    pub(crate) fn is_met(&self) -> bool {
        matches!(self.link, Link::Met(_))
    }

    /// Whether a handshake that was sent by `since` or later has been answered.
    pub(crate) fn was_met_since(&self, since: Tick) -> bool {
        self.met_at.is_some_and(|at| at >= since)
    }

    /// Why the node itself is not counted, whatever the others say.
    pub(crate) fn refusal(&self) -> Option<&str> {
        match &self.link {
            Link::Met(Standing::Refused(why) | Standing::Duplicate(why)) => Some(why),
            Link::Down {
                why, refused: true, ..
            }
            | Link::Dialing {
                why: Some((why, true)),
                ..
            } => Some(why),
            _ => None,
        }
    }

    /// Whether another address leads to the same server.
    pub(crate) fn is_duplicate(&self) -> bool {
        matches!(self.link, Link::Met(Standing::Duplicate(_)))
    }

    /// What the node is now.
    pub(crate) fn state(&self, now: Tick, fleet: &Fleet) -> NodeState {
        if let Some(since) = self.stalled {
            return NodeState::Stalled(now.since(since));
        }
        match &self.link {
            Link::Down {
                since,
                why,
                refused,
                ..
            } => down(*since, why, *refused, now),
            Link::Dialing {
                since,
                why: Some((why, refused)),
            } => down(*since, why, *refused, now),
            Link::Dialing { why: None, .. } | Link::Greeting => NodeState::Connecting,
            Link::Met(standing) => standing.state(now, self.witness.as_ref(), fleet),
        }
    }

    pub(crate) fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Whether the state may have changed since this was last asked.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Whether the first try to reach the node is over, well or ill.
    pub(crate) fn was_tried(&self) -> bool {
        match &self.link {
            Link::Down { why, .. } => !why.is_empty(),
            Link::Dialing { why, .. } => why.is_some(),
            Link::Greeting => false,
            Link::Met(_) => true,
        }
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(crate) fn next_tick(&self, settings: &Settings) -> Option<Tick> {
        let link = match &self.link {
            Link::Down { dial_at, .. } => Some(*dial_at),
            Link::Dialing { .. } => None,
            Link::Greeting | Link::Met(_) => {
                let silence = match self.stalled {
                    None => self.late_at(settings),
                    Some(_) => self
                        .silent_since()
                        .map(|at| at.plus(settings.silence_limit())),
                };
                let sends = self.may_release() && self.stalled.is_none();
                let retry = self.duties.next_retry().filter(|_| sends);
                [silence, self.next_hello, retry]
                    .into_iter()
                    .flatten()
                    .min()
            }
        };
        [link, self.duties.next_expiry()]
            .into_iter()
            .flatten()
            .min()
    }

    // ---- what the world says --------------------------------------------------------------

    /// What was sent has left: the time that the node may take begins.
    pub(crate) fn left(&mut self, now: Tick) {
        for sent in self.inflight.range_mut(self.left..) {
            sent.at = now;
        }
        self.left = self.inflight.len();
    }

    /// Whether something was sent of which [`left`](Self::left) does not know.
    pub(crate) fn has_unleft(&self) -> bool {
        self.left < self.inflight.len()
    }

    /// Time has come; what had arrived by `seen` was read.
    pub(crate) fn tick(&mut self, step: &mut Step<'_>, seen: Tick) {
        self.duties.expire(step.now);
        match &self.link {
            Link::Down {
                since,
                why,
                refused,
                dial_at,
            } if *dial_at <= step.now => {
                let why = (!why.is_empty()).then(|| (Arc::clone(why), *refused));
                self.link = Link::Dialing { since: *since, why };
                step.effects.push_back(Effect::Dial(self.node));
            }
            Link::Greeting | Link::Met(_) => self.tick_up(step, seen),
            _ => {}
        }
    }

    fn tick_up(&mut self, step: &mut Step<'_>, seen: Tick) {
        let silent = self
            .silent_since()
            .map_or(Duration::ZERO, |at| seen.since(at));
        if silent >= step.settings.silence_limit() {
            return self.close(step, &format!("silent for {silent:.1?}, reconnecting"));
        }
        if self.stalled.is_none() && self.late_at(step.settings).is_some_and(|at| at <= seen) {
            self.stalled = self.inflight.front().map(|sent| sent.at);
            self.changed = true;
            let waiting = std::mem::take(&mut self.waiting);
            self.take_back(step, waiting, &Silence::Stalled);
            step.effects.push_back(Effect::Withdraw(self.node));
        }
        if self.next_hello.is_some_and(|at| at <= step.now) {
            self.hello(step);
        }
        if self.may_release() && self.stalled.is_none() {
            for id in self.duties.due(step.now) {
                self.send_release(step, id);
            }
        }
    }

    /// A connection is there.
    pub(crate) fn connected(&mut self, step: &mut Step<'_>, client_id: u64, note: Option<&str>) {
        self.client_id = client_id;
        self.note = note.map(str::to_owned);
        self.heard_at = step.now;
        self.changed = true;
        self.unclean = true;
        self.met_at = None;
        self.link = Link::Greeting;
        if !step.settings.rules.hold(Rule::HandshakeFirst) && self.witness.is_some() {
            // As a library that reconnects by itself would have it.
            self.link = Link::Met(Standing::Fit);
            self.next_hello = Some(step.now.plus(PING_AGAIN));
            return;
        }
        self.hello(step);
    }

    /// No connection came about.
    pub(crate) fn dial_failed(&mut self, step: &mut Step<'_>, error: &DialError) {
        let (why, refused) = match error {
            DialError::Unreachable(why) => (why, false),
            DialError::Refused(why) => (why, true),
        };
        self.go_down(step, why, refused);
    }

    /// The connection is over.
    pub(crate) fn disconnected(&mut self, step: &mut Step<'_>, why: &Disconnected) {
        if !matches!(self.link, Link::Greeting | Link::Met(_)) {
            // It was closed from here, and the shell had not heard of that.
            return;
        }
        let in_doubt = self.inflight.iter().any(Sent::takes);
        if let (true, Some(witness)) = (in_doubt, &self.witness) {
            if self.doubtful.len() == MOST_DOUBTFUL {
                self.doubtful.remove(0);
            }
            self.doubtful.push(Doubtful {
                client: self.client_id,
                run: witness.record.run.clone(),
            });
        }
        for sent in std::mem::take(&mut self.inflight) {
            match sent.what {
                What::Vote(tag) => self.tell(step, tag, Err(Silence::ConnectionLost)),
                What::Release(id) => self.duties.unsent(id, step.now),
                What::Hello | What::Load | What::Kill(_) => {}
            }
        }
        let waiting = std::mem::take(&mut self.waiting);
        self.take_back(step, waiting, &Silence::Unreachable(why.0.clone()));
        self.left = 0;
        self.under_way = UnderWay::default();
        self.next_hello = None;
        self.stalled = None;
        step.fleet.forget_run(self.node);
        step.fleet.see(step.now, self.node, None);
        self.go_down(step, &why.0, false);
    }

    fn close(&mut self, step: &mut Step<'_>, why: &str) {
        step.effects.push_back(Effect::Close(self.node));
        self.disconnected(step, &Disconnected(why.to_owned()));
    }

    /// The connection took back this many operations of which no byte was written. `behind`: this many
    /// more were asked for since, which it has not been given yet.
    pub(crate) fn withdrawn(&mut self, step: &mut Step<'_>, taken: usize, behind: usize) {
        let end = self.inflight.len().saturating_sub(behind);
        let mut kept = self.inflight.split_off(end);
        let taken = self.inflight.split_off(end.saturating_sub(taken));
        self.left = self.left.min(self.inflight.len());
        self.inflight.append(&mut kept);
        self.take_back(step, taken, &Silence::Stalled);
        self.look_if_stalled(step);
    }

    /// These never left. What would have freed one of them has nothing to free.
    fn take_back(&mut self, step: &mut Step<'_>, taken: VecDeque<Sent>, why: &Silence) {
        let mut never_taken = BTreeSet::new();
        for sent in taken {
            self.under_way.end(sent.what);
            match sent.what {
                What::Vote(tag) => {
                    never_taken.extend(sent.operation.command().takes().cloned());
                    self.tell(step, tag, Err(why.clone()));
                }
                What::Release(id) if frees_one_of(&sent, &never_taken) => {
                    if let Some(tag) = self.duties.done(id) {
                        self.tell(step, tag, Err(why.clone()));
                    }
                }
                What::Release(id) => self.duties.unsent(id, step.now),
                What::Hello => self.next_hello = Some(step.now.plus(PING_AGAIN)),
                What::Load | What::Kill(_) => {}
            }
        }
    }

    /// The node answered the oldest unanswered command.
    pub(crate) fn answered(&mut self, step: &mut Step<'_>, answer: Answer) {
        let Some(sent) = self.inflight.pop_front() else {
            return;
        };
        self.left = self.left.saturating_sub(1);
        self.under_way.end(sent.what);
        self.heard_at = step.now;
        self.look_if_stalled(step);
        let over = self.has_changed(&sent, &answer);
        if answer.is_ok() && matches!(self.link, Link::Met(_)) {
            // More than the handshake alone: a server that denies its role right after that is not
            // dialled in a loop.
            self.backoff = FIRST_BACKOFF;
        }
        match &answer {
            Err(Fault::NotAdmitted) => {
                if let Link::Met(standing @ Standing::Fit) = &mut self.link {
                    *standing = Standing::Changed;
                    self.changed = true;
                }
                self.hello(step);
            }
            Err(Fault::NoScript) => self.load_scripts(step),
            _ => {}
        }
        match sent.what {
            What::Vote(tag) => self.voted(step, tag, &sent, answer),
            What::Release(id) => self.release_answered(step, id, &sent, answer),
            What::Hello if over.is_some() => {}
            What::Hello => self.met(step, answer, sent.at),
            What::Kill(client) => self.killed(client, &answer),
            What::Load => {}
        }
        match over {
            Some(why) => self.close(step, &why),
            None => self.send_waiting(step),
        }
    }

    // ---- inside ---------------------------------------------------------------------------

    /// Stalled no more, if nothing has been unanswered for too long.
    fn look_if_stalled(&mut self, step: &Step<'_>) {
        let late = self.late_at(step.settings).is_some_and(|at| at <= step.now);
        if self.stalled.is_some() && !late {
            self.stalled = None;
            self.changed = true;
        }
    }

    /// A server that says so is not the master that was met, or does not permit what it did: what it
    /// is now, a new connection tells. The server's words, if it is one that counted.
    fn has_changed(&self, sent: &Sent, answer: &Answer) -> Option<String> {
        let text = match answer {
            Err(Fault::Error(text)) => {
                let word = text.split(' ').next();
                matches!(word, Some("READONLY" | "LOADING" | "MASTERDOWN")).then_some(text)
            }
            Err(Fault::Withheld(text)) => sent.needs_voters_rights().then_some(text),
            _ => None,
        };
        // One that is refused is met again and again as it is.
        let counted = !matches!(
            self.link,
            Link::Met(Standing::Refused(_) | Standing::Duplicate(_))
        );
        text.filter(|_| counted).cloned()
    }

    fn voted(&mut self, step: &mut Step<'_>, tag: Tag, sent: &Sent, answer: Answer) {
        // What takes something is not sent again: it would pass its own RELEASE. The others may.
        let harmless = !sent.takes() || !step.settings.rules.hold(Rule::AcquireOnce);
        if answer == Err(Fault::NoScript) && harmless && !sent.again {
            return self.send_again(step, Arc::clone(&sent.operation), sent.what);
        }
        let answer = answer
            .and_then(Reply::credible)
            .map_err(|fault| match fault {
                Fault::NotAdmitted => Silence::NotAdmitted,
                Fault::NoScript => Silence::ScriptsFlushed,
                Fault::Withheld(text) | Fault::Error(text) => Silence::Failed(text),
            });
        self.tell(step, tag, answer);
    }

    fn release_answered(&mut self, step: &mut Step<'_>, id: DutyId, sent: &Sent, answer: Answer) {
        match answer {
            Ok(reply) => {
                if let Some(tag) = self.duties.done(id) {
                    self.tell(step, tag, Ok(reply));
                }
            }
            Err(_) if !step.settings.rules.hold(Rule::ReleaseUntilAnswered) => {
                self.duties.done(id);
            }
            Err(Fault::NoScript) if !sent.again && self.duties.is_owed(id) => {
                self.send_again(step, Arc::clone(&sent.operation), sent.what);
            }
            Err(fault) => {
                let error = match fault {
                    Fault::Withheld(text) | Fault::Error(text) => Some(text),
                    Fault::NotAdmitted | Fault::NoScript => None,
                };
                self.duties.failed(id, step.now, error);
            }
        }
    }

    fn killed(&mut self, client: u64, answer: &Answer) {
        // Where the right is missing, the connection's note says so. After another error it is tried
        // again, behind the next handshake.
        if matches!(answer, Ok(_) | Err(Fault::Withheld(_))) {
            self.doubtful.retain(|d| d.client != client);
        }
    }

    fn hello(&mut self, step: &mut Step<'_>) {
        self.next_hello = None;
        if self.under_way.hello {
            return;
        }
        match greeting::handshake(step, self.node, self.witness.as_ref()) {
            Ok(handshake) => {
                let operation = Operation::new(admission::Command::Handshake(handshake));
                self.send(step, operation, What::Hello);
            }
            Err(_) => self.next_hello = Some(step.now.plus(PING_AGAIN)),
        }
    }

    fn met(&mut self, step: &mut Step<'_>, answer: Answer, asked_at: Tick) {
        self.changed = true;
        self.met_at = Some(asked_at);
        let mut run = None;
        let standing = match answer {
            Ok(Reply::Admission(admission::Reply::Met(meeting))) => {
                run = Some(meeting.server.run.clone());
                let (standing, witness) = greeting::judge(step, self.node, &meeting);
                if let Some(witness) = witness {
                    let guard = witness.record.guard(step.settings.rules);
                    if guard != self.guard.as_str() {
                        self.guard = Guard::new(guard);
                    }
                    self.witness = Some(witness);
                }
                standing
            }
            Ok(other) => Standing::Refused(format!("it answered the handshake with {other:?}")),
            Err(Fault::Withheld(why) | Fault::Error(why)) => greeting::failed(&why, step.fleet),
            Err(fault) => Standing::Refused(format!("it answered the handshake with {fault:?}")),
        };
        self.link = Link::Met(standing);
        if let Some(run) = run {
            self.clean_up(step, &run);
        }
        let state = self.state(step.now, step.fleet);
        let wait = match state {
            NodeState::Voting => PING,
            NodeState::Quarantined(left) => left.min(PING_AGAIN),
            _ => PING_AGAIN,
        };
        let jitter = Duration::from_micros(step.chance.up_to(micros(wait) / 10));
        self.next_hello = Some(step.now.plus(wait).plus(jitter));
        // What was asked before the fleet's terms changed is asked again.
        if state == NodeState::Connecting && asked_at <= step.fleet.moved_at() {
            self.hello(step);
        }
    }

    /// Whether a RELEASE may travel: the handshake was read, and it said which run this is.
    fn may_release(&self) -> bool {
        matches!(self.link, Link::Met(_)) && !self.unclean
    }

    /// After a handshake: ends older connections that may still carry an ACQUIRE; then, if it is the
    /// first of this connection, frees what is to be freed. An error is no handshake: it does not
    /// say which run this is, and the one that was read before may be gone.
    fn clean_up(&mut self, step: &mut Step<'_>, run: &str) {
        // Connection ids start again with the server: in another run the id is a stranger's.
        if step.settings.rules.hold(Rule::KillSameRunOnly) {
            self.doubtful
                .retain(|d| super::admission::same_run(&d.run, run));
        }
        let clients: Vec<u64> = self.doubtful.iter().map(|d| d.client).collect();
        for client in clients {
            if !self.under_way.kills.contains(&client) {
                let operation = Operation::new(server::Command::Disconnect { client });
                self.send(step, operation, What::Kill(client));
            }
        }
        if std::mem::take(&mut self.unclean) {
            for id in self.duties.unanswered() {
                self.send_release(step, id);
            }
        }
    }

    fn send_release(&mut self, step: &mut Step<'_>, id: DutyId) {
        if let Some(operation) = self.duties.sent(id) {
            self.send(step, operation, What::Release(id));
        }
    }

    fn load_scripts(&mut self, step: &mut Step<'_>) {
        if !self.under_way.load {
            let operation = Operation::new(server::Command::LoadScripts);
            self.send(step, operation, What::Load);
        }
    }

    fn send(&mut self, step: &mut Step<'_>, operation: Arc<Operation>, what: What) {
        self.put(step, operation, what, false);
    }

    /// Once more; not a third time.
    fn send_again(&mut self, step: &mut Step<'_>, operation: Arc<Operation>, what: What) {
        self.put(step, operation, what, true);
    }

    fn put(&mut self, step: &mut Step<'_>, operation: Arc<Operation>, what: What, again: bool) {
        self.under_way.begin(what);
        let sent = Sent {
            operation,
            what,
            at: step.now,
            again,
        };
        // What waits must not be overtaken: a RELEASE comes after its ACQUIRE. Of the rest there is
        // one each, and what waits may wait for it.
        let in_order = matches!(what, What::Vote(_) | What::Release(_));
        if in_order && !(self.waiting.is_empty() && self.has_room()) {
            self.waiting.push_back(sent);
        } else {
            self.fly(step, sent);
        }
    }

    fn has_room(&self) -> bool {
        self.inflight.len() < MOST_IN_FLIGHT
    }

    fn fly(&mut self, step: &mut Step<'_>, sent: Sent) {
        let operation = Arc::clone(&sent.operation);
        self.inflight.push_back(sent);
        let guard = Arc::clone(&self.guard);
        step.effects
            .push_back(Effect::Send(self.node, operation, guard));
    }

    fn send_waiting(&mut self, step: &mut Step<'_>) {
        while self.has_room() {
            let Some(mut sent) = self.waiting.pop_front() else {
                break;
            };
            sent.at = step.now;
            self.fly(step, sent);
        }
    }

    fn tell(&self, step: &mut Step<'_>, tag: Tag, answer: Result<Reply, Silence>) {
        step.heard.push_back(Heard {
            tag,
            node: self.node,
            answer,
        });
    }

    fn go_down(&mut self, step: &mut Step<'_>, why: &str, refused: bool) {
        let since = match &self.link {
            Link::Down { since, .. } | Link::Dialing { since, .. } => *since,
            Link::Greeting | Link::Met(_) => step.now,
        };
        let wait = if refused {
            self.backoff.max(Duration::from_secs(1))
        } else {
            self.backoff
        };
        let half = wait / 2;
        let jitter = Duration::from_micros(step.chance.up_to(micros(half)));
        self.link = Link::Down {
            since,
            why: why.into(),
            refused,
            dial_at: step.now.plus(half + jitter),
        };
        self.backoff = (self.backoff * 2).min(LAST_BACKOFF);
        self.changed = true;
    }

    fn is_in_quarantine(&self) -> bool {
        self.witness()
            .is_some_and(|witness| !witness.record.votes())
    }

    /// Since when the node owes an answer and says nothing.
    fn silent_since(&self) -> Option<Tick> {
        self.inflight.front().map(|sent| sent.at.max(self.heard_at))
    }

    /// When the oldest request will have been unanswered for too long: a node that answers ever
    /// later is late as well.
    fn late_at(&self, settings: &Settings) -> Option<Tick> {
        let oldest = self.inflight.front()?;
        Some(oldest.at.plus(settings.node_timeout))
    }
}

impl Sent {
    /// Whether it may leave something on the node.
    fn takes(&self) -> bool {
        self.operation.command().takes().is_some()
    }

    /// Whether a node must permit it in order to vote.
    fn needs_voters_rights(&self) -> bool {
        self.operation.command().needs_voters_rights()
    }
}

fn frees_one_of(sent: &Sent, entries: &BTreeSet<Entry>) -> bool {
    let frees = sent.operation.command().frees();
    frees.is_some_and(|entry| entries.contains(entry))
}

fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
}

fn down(since: Tick, why: &str, refused: bool, now: Tick) -> NodeState {
    if why.is_empty() {
        NodeState::Connecting
    } else if refused {
        NodeState::Refused(why.to_owned())
    } else {
        NodeState::Unreachable(now.since(since), why.to_owned())
    }
}

//! Connections: two ordered streams of messages with delays. They break, stand still, or deliver messages long after
//! the client has given them up.

use std::{collections::VecDeque, sync::Arc};

use super::{
    invariants::{Held, ms, strangers},
    logins::Provided,
    profile::{MS, US},
    world::{What, World},
};
use crate::base::{
    name::{Name, Names},
    owner::Entry,
};
use crate::node::{
    Command, Fault, Guard, Operation, Push,
    admission::{self, BootRecord},
    answer::{Answer, Answered},
    batch,
    request::{Question, Request, Target, Verb},
    server,
};

const DIAL_TIMEOUT: u64 = 150 * MS;

/// The answers of a slow server come at most this much later.
const LATEST: u64 = 2000 * MS;

/// An operation, and the guard of the node that it goes to.
type Sent = (Arc<Operation>, Arc<Guard>);

/// The content of one script call: one request, or a batch. It is lost, late or executed as a whole.
type Message = Vec<Sent>;

/// A connection, or one that is being opened.
pub(crate) struct Connection {
    pub(crate) client: usize,
    pub(crate) incarnation: u64,
    pub(crate) node: usize,
    pub(crate) server: usize,
    pub(crate) client_id: u64,
    /// The messages to the server, each with the time of its arrival.
    up: VecDeque<(u64, Message)>,
    pub(crate) last_up: u64,
    /// Operations that are not written yet. They are in no message.
    unwritten: Vec<Sent>,
    /// Messages that have arrived, and are not executed yet.
    arrived: VecDeque<Message>,
    down: VecDeque<(u64, Down)>,
    last_down: u64,
    /// No message passes before this instant.
    pub(crate) up_frozen: u64,
    down_frozen: u64,
    clogged: bool,
    /// True while the client still reads from it.
    pub(crate) wanted: bool,
    /// True if nothing that the client sends arrives any more.
    pub(crate) cut: bool,
    /// True while the server's side is open.
    pub(crate) open: bool,
    /// True if the server publishes to it.
    pub(crate) listens: bool,
    /// When the server ends it, unless it logs in again, ns.
    pub(crate) login_ends: Option<u64>,
    /// The client is logging in again.
    pub(crate) logging_in: bool,
}

/// A message that arrives at a client.
pub(crate) enum Down {
    Connected(u64),
    Refused,
    /// The answers to all operations of a message, each with its operation.
    Answers(AnsweredBatch),
    Push(Push),
    /// AUTH was accepted, or refused.
    LoggedIn(bool),
    Closed,
}

/// Answers, each with its operation.
pub(crate) type AnsweredBatch = Vec<(Answered, Arc<Operation>)>;

impl Connection {
    /// The earliest arrival of the client's last message.
    pub(crate) fn frozen_until(&self) -> u64 {
        self.up_frozen.max(self.last_up)
    }
}

impl World {
    pub(crate) fn delay(&mut self) -> u64 {
        let (slow, longest) = self.plan.slow;
        let most = if self.calm { 3 * MS } else { self.plan.delay };
        let base = self.dice.skewed(100 * US, most);
        if self.dice.per_mille(slow) {
            base + self.dice.skewed(0, longest)
        } else {
            base
        }
    }

    pub(crate) fn dial(&mut self, client: usize, node: usize) -> usize {
        let id = self.connections.len();
        let server = self.clients[client].servers[node];
        let frozen = self.partitioned_until(client, server);
        self.connections.push(Connection {
            client,
            incarnation: self.clients[client].incarnation,
            node,
            server,
            client_id: 0,
            up: VecDeque::new(),
            last_up: 0,
            unwritten: Vec::new(),
            arrived: VecDeque::new(),
            down: VecDeque::new(),
            last_down: 0,
            up_frozen: frozen,
            down_frozen: frozen,
            clogged: false,
            wanted: true,
            cut: false,
            open: false,
            listens: false,
            login_ends: None,
            logging_in: false,
        });
        let at = (self.now + self.delay()).max(frozen);
        self.at(at, What::Dial(id));
        self.at(self.now + DIAL_TIMEOUT, What::DialTimeout(id));
        id
    }

    /// A new connection arrives at the server.
    pub(crate) fn dial_arrives(&mut self, id: usize) {
        let server = &mut self.servers[self.connections[id].server];
        if !self.connections[id].wanted {
            return;
        }
        if !server.up {
            self.answer(id, Down::Refused);
        } else if server.paused || server.draining {
            server.dials.push(id);
        } else {
            self.greet(id);
        }
    }

    fn greet(&mut self, id: usize) {
        match self.provided_for_dial() {
            Provided::Good => {}
            Provided::Wrong => return self.answer(id, Down::Refused),
            // The dial times out.
            Provided::Nothing => return,
        }
        let connection = &mut self.connections[id];
        let server = &mut self.servers[connection.server];
        server.last_client_id += 1;
        server.scripts = true;
        server.open.push(id);
        connection.client_id = server.last_client_id;
        connection.open = true;
        let client_id = connection.client_id;
        self.begin_login(id);
        let deaf = self.plan.deaf;
        if !self.dice.percent(deaf) {
            self.subscribe(id);
        }
        self.answer(id, Down::Connected(client_id));
    }

    pub(crate) fn answer(&mut self, id: usize, down: Down) {
        let number = self.connections[id].server;
        let far = if number + 1 == self.servers.len() && !self.calm {
            self.plan.far
        } else {
            0
        };
        let server = &mut self.servers[number];
        server.late = (server.late + server.later).min(LATEST);
        let delay = server.late + far + self.delay();
        let connection = &mut self.connections[id];
        let at = (self.now + delay).max(connection.last_down);
        connection.last_down = at;
        connection.down.push_back((at, down));
        let at = at.max(connection.down_frozen);
        self.at(at, What::Deliver(id));
    }

    /// The next message that has arrived at the client.
    pub(crate) fn next_down(&mut self, id: usize) -> Option<Down> {
        let now = self.now;
        let connection = &mut self.connections[id];
        if connection.down_frozen > now || connection.down.front().is_none_or(|(at, _)| *at > now) {
            return None;
        }
        connection.down.pop_front().map(|(_, down)| down)
    }

    /// The next message that has arrived, if it is an answer or a push.
    pub(crate) fn next_said(&mut self, id: usize) -> Option<Down> {
        let next = self.connections[id].down.front();
        match next {
            Some((_, Down::Answers(_) | Down::Push(_) | Down::LoggedIn(_))) => self.next_down(id),
            _ => None,
        }
    }

    pub(crate) fn send(&mut self, id: usize, sent: Sent) {
        self.connections[id].unwritten.push(sent);
    }

    /// Sends everything that waits in as few messages as possible, if the socket takes it.
    pub(crate) fn flush(&mut self, id: usize) {
        while !self.connections[id].clogged {
            let unwritten = &self.connections[id].unwritten;
            let mut together = batch::first(unwritten.iter().map(|(o, g)| (&**o, &**g)));
            if together == 0 {
                return;
            }
            // Another node gets the same operations in other batches, because it took earlier ones at another time.
            if together > 1 && self.dice.percent(30) {
                together = 1 + self.dice.index(together);
            }
            let message: Message = self.connections[id].unwritten.drain(..together).collect();
            self.transmit(id, message);
        }
    }

    fn transmit(&mut self, id: usize, message: Message) {
        let delay = self.delay();
        let connection = &mut self.connections[id];
        if connection.cut {
            return;
        }
        let at = (self.now + delay).max(connection.last_up);
        connection.last_up = at;
        connection.up.push_back((at, message));
        let at = at.max(connection.up_frozen);
        self.at(at, What::Arrive(id));
    }

    /// Withdraws the operations that were not written.
    pub(crate) fn withdraw(&mut self, id: usize) -> usize {
        let unwritten = std::mem::take(&mut self.connections[id].unwritten);
        unwritten.len()
    }

    /// A message arrives at the server.
    pub(crate) fn arrive(&mut self, id: usize) -> Held {
        let now = self.now;
        let connection = &mut self.connections[id];
        if connection.up_frozen > now {
            return Ok(());
        }
        while connection.up.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, message)) = connection.up.pop_front()
                && connection.open
            {
                connection.arrived.push_back(message);
            }
        }
        while server_is_free(&self.servers[self.connections[id].server]) && self.execute(id)? {}
        Ok(())
    }

    /// A server that was paused does one piece of the work that has piled up, from any of its sockets.
    pub(crate) fn drain(&mut self, server: usize) -> Held {
        let state = &self.servers[server];
        if !state.draining || state.paused || !state.up {
            return Ok(());
        }
        let busy: Vec<usize> = state
            .open
            .iter()
            .copied()
            .filter(|&id| !self.connections[id].arrived.is_empty())
            .collect();
        let dials = state.dials.len();
        match self.dice.index(busy.len() + dials) {
            _ if busy.is_empty() && dials == 0 => {
                self.servers[server].draining = false;
                return Ok(());
            }
            n if n < busy.len() => {
                self.execute(busy[n])?;
            }
            n => {
                let id = self.servers[server].dials.remove(n - busy.len());
                self.greet(id);
            }
        }
        let next = self.now + self.dice.skewed(2 * US, 400 * US);
        self.at(next, What::Drain(server));
        Ok(())
    }

    /// The server executes the next message of this connection, in one atomic step. Returns false if there was none.
    fn execute(&mut self, id: usize) -> Result<bool, super::invariants::Violation> {
        let Some(message) = self.connections[id].arrived.pop_front() else {
            return Ok(false);
        };
        let s = self.connections[id].server;
        self.stats.commands += message.len() as u64;
        if message.len() > 1 {
            self.stats.batches += 1;
            self.stats.batched += message.len() as u64;
        }
        let refusal = self.refuses(s, message.first().map(|(first, _)| first.command()));
        let (mut answers, mut raised) = (Vec::with_capacity(message.len()), false);
        for (place, (operation, guard)) in message.iter().enumerate() {
            let command = operation.command();
            let answer = match &refusal {
                Some(fault) => Err(fault.clone()),
                None => self.obey(id, s, command, guard.as_str(), place)?,
            };
            if self.tracing() {
                self.trace_answer(id, command, &answer, place + 1, message.len());
            }
            raised |= command
                .request()
                .is_some_and(|request| match &request.target {
                    Target::Mutex(names) => {
                        names.one().is_some() && matches!(request.verb, Verb::Raise { .. })
                    }
                    _ => false,
                });
            answers.push((answer, Arc::clone(operation)));
        }
        let pushes = self.servers[s].store.take_pushes();
        // The pushes of the script come before its answer or after it.
        let before = !pushes.is_empty() && self.dice.percent(50);
        if before {
            self.publish(s, &pushes);
        }
        self.answer(id, Down::Answers(answers));
        if !before {
            self.publish(s, &pushes);
        }
        if raised && !self.calm && self.plan.cut_raises > 0 && self.connections[id].wanted {
            let often = self.plan.cut_raises;
            if self.dice.percent(often) {
                self.cut(id);
            }
        }
        Ok(true)
    }

    fn trace_answer(
        &mut self,
        id: usize,
        command: &Command,
        answer: &Answered,
        place: usize,
        of: usize,
    ) {
        let Connection {
            client,
            incarnation,
            server: s,
            ..
        } = self.connections[id];
        let time = self.servers[s].time(self.now);
        let batch = match of {
            1 => String::new(),
            _ => format!(" [{place}/{of}]"),
        };
        self.trace(format!(
            "  s{s} ({time}) c{client}.{incarnation}#{id}{batch}: {} -> {}",
            brief(command),
            brief_answer(answer)
        ));
    }

    /// The reason why a script that begins with this command does not run at all.
    fn refuses(&mut self, s: usize, first: Option<&Command>) -> Option<Fault> {
        let errors = self.servers[s].errors;
        if errors > 0 && self.dice.per_mille(errors) {
            let text = "BUSY Redis is busy running a script.";
            return Some(Fault::Error(text.into()));
        }
        let needs_none = matches!(
            first?,
            Command::Server(server::Command::Disconnect { .. } | server::Command::LoadScripts)
                | Command::Admission(admission::Command::Handshake(_))
        );
        (!needs_none && !self.servers[s].scripts).then_some(Fault::NoScript)
    }

    /// `place` is the number of operations that the script executed before.
    fn obey(
        &mut self,
        id: usize,
        s: usize,
        command: &Command,
        guard: &str,
        place: usize,
    ) -> Result<Answered, super::invariants::Violation> {
        match command {
            Command::Server(server::Command::Disconnect { client }) => {
                return self
                    .kill(id, s, *client)
                    .map(|killed| Ok(Answer::Server(server::Reply::Disconnected(killed))));
            }
            Command::Server(server::Command::LoadScripts) => {
                self.servers[s].scripts = true;
                return Ok(Ok(Answer::Server(server::Reply::Loaded)));
            }
            _ => {}
        }
        let now = self.now;
        let server = &mut self.servers[s];
        let time = server.time(now);
        let before = matches!(
            command,
            Command::Admission(admission::Command::Handshake(_))
        )
        .then(|| server.store.record());
        let answer = match place {
            0 => server.store.apply(command, guard, time),
            _ => server.store.apply_next(command, guard, time),
        };
        for name in locks_of(command) {
            let (turns, standing) = (&mut self.checks.turns, server.store.standing(name, time));
            let standing: Vec<&str> = standing.map(Entry::as_str).collect();
            let turns = turns.entry(name.as_str().to_owned()).or_default();
            turns.stand(now, s, self.plan.servers, &standing);
        }
        if let Some(before) = before {
            self.note_record(self.connections[id].client, s, before)?;
        }
        if let Some(Request {
            target: Target::Mutex(names),
            entry,
            verb: Verb::Acquire { .. },
        }) = command.request()
        {
            self.checks.asked(entry.as_str(), now);
            self.note_set(entry, names);
        }
        self.look_at_sets(s, time)?;
        self.look_at_sides(s, time)?;
        match (command, &answer) {
            (Command::Request(request), Ok(reply)) => match &request.target {
                Target::Mutex(names) => self.note_mutex(s, names, request, reply, time)?,
                Target::Rwlock(..) => self.note_rwlock(s, &request.target, reply, time)?,
                Target::Slot(pool, _) => self.note_slots(s, pool, Some(request), reply, time)?,
            },
            (Command::Question(Question::Resize(pool, _)), Ok(reply)) => {
                self.note_slots(s, pool, None, reply, time)?;
            }
            (_, Err(Fault::NotAdmitted)) => self.stats.not_admitted += 1,
            _ => {}
        }
        Ok(answer)
    }

    /// Checks an answer about one mutex or several: counters never go back, and after a grant several names have the
    /// same counter.
    fn note_mutex(
        &mut self,
        s: usize,
        names: &Names,
        request: &Request,
        reply: &Answer,
        time: u64,
    ) -> Held {
        let (entry, counters) = (request.entry.as_str(), &mut self.servers[s].counters);
        let one = names.one().map(Name::as_str);
        match reply {
            Answer::Granted(counter) => {
                for name in names.all() {
                    counters.seen(s, name.as_str(), *counter, time, true)?;
                }
                self.checks.stood(s, entry, *counter);
            }
            Answer::Held { counter, .. } if !request.keeps_a_place() => {
                if let Some(name) = one {
                    counters.seen(s, name, *counter, time, false)?;
                }
            }
            Answer::Raised(counter) | Answer::Taken { counter, .. } => {
                if let Some(name) = one {
                    counters.seen(s, name, *counter, time, false)?;
                }
                self.checks.stood(s, entry, *counter);
                self.stats.raises += u64::from(matches!(reply, Answer::Raised(_)));
            }
            Answer::Yielded => self.stats.yields += 1,
            Answer::Repaired(true) => self.stats.repaired += 1,
            _ => {}
        }
        Ok(())
    }

    /// A handshake was executed. Checks whether the record changed, and which client changed it.
    fn note_record(&mut self, c: usize, s: usize, before: Option<BootRecord>) -> Held {
        let after = self.servers[s].store.record();
        let id = |record: &Option<BootRecord>| record.as_ref().map(|r| r.id.clone());
        let terms = |record: &Option<BootRecord>| record.as_ref().map(|r| r.terms);
        if !self.plan.clients[c].fit {
            if id(&before) != id(&after) || terms(&before) != terms(&after) {
                self.stats.strange += 1;
                self.servers[s].records.touch();
            }
        } else if id(&before) != id(&after) {
            // A client that has not heard of a raise yet may once lower the raised terms.
            if self.plan.raised.is_some() && terms(&before) != terms(&after) {
                self.servers[s].records.touch();
            }
            return self.servers[s].records.made(s);
        }
        Ok(())
    }

    /// CLIENT KILL ID.
    fn kill(
        &mut self,
        killer: usize,
        s: usize,
        client_id: u64,
    ) -> Result<bool, super::invariants::Violation> {
        let open = self.servers[s].open.iter().copied();
        let Some(victim) = open
            .into_iter()
            .find(|&id| self.connections[id].client_id == client_id)
        else {
            return Ok(false);
        };
        let who = |c: &Connection| (c.client, c.incarnation);
        strangers::check(
            who(&self.connections[killer]),
            who(&self.connections[victim]),
            client_id,
        )?;
        self.stats.kills += 1;
        self.server_closes(victim);
        Ok(true)
    }

    /// The server ends a connection. It never executes what has not been executed from it.
    pub(crate) fn server_closes(&mut self, id: usize) {
        let connection = &mut self.connections[id];
        connection.open = false;
        connection.up.clear();
        connection.arrived.clear();
        connection.unwritten.clear();
        connection.cut = true;
        let server = connection.server;
        self.servers[server].open.retain(|&other| other != id);
        self.unsubscribe(id);
        if self.connections[id].wanted {
            self.answer(id, Down::Closed);
        }
    }

    /// The client stops reading from it. Messages that were written still arrive.
    pub(crate) fn client_closes(&mut self, id: usize) {
        let connection = &mut self.connections[id];
        let was_wanted = std::mem::replace(&mut connection.wanted, false);
        connection.cut = true;
        connection.unwritten.clear();
        connection.down.clear();
        if was_wanted && connection.listens {
            self.hang_up(id);
        }
    }

    /// The connection breaks. The client learns of it soon, the server late or never. Messages that were sent are
    /// executed in part, or late.
    pub(crate) fn cut(&mut self, id: usize) {
        let late = self
            .dice
            .percent(50)
            .then(|| self.now + self.dice.skewed(MS, 900 * MS));
        let (ups, downs) = (
            self.connections[id].up.len(),
            self.connections[id].down.len(),
        );
        let (keep_up, keep_down) = (self.dice.index(ups + 1), self.dice.index(downs + 1));
        let connection = &mut self.connections[id];
        connection.unwritten.clear();
        connection.cut = true;
        connection.down.truncate(keep_down);
        match late {
            Some(at) => {
                connection.up_frozen = connection.up_frozen.max(at);
                let at = connection.up_frozen;
                self.at(at, What::Arrive(id));
            }
            None => connection.up.truncate(keep_up),
        }
        let thaw = self.connections[id].down_frozen.min(self.now + 50 * MS);
        self.connections[id].down_frozen = thaw;
        self.answer(id, Down::Closed);
    }

    /// Nothing passes in either direction until then. With `clog`, nothing more is written.
    pub(crate) fn freeze(&mut self, id: usize, until: u64, clog: bool) {
        let connection = &mut self.connections[id];
        connection.up_frozen = connection.up_frozen.max(until);
        connection.down_frozen = connection.down_frozen.max(until);
        connection.clogged |= clog;
        self.at(until, What::Thaw(id));
    }

    pub(crate) fn thaw(&mut self, id: usize) -> Held {
        let connection = &mut self.connections[id];
        if connection.up_frozen > self.now {
            return Ok(());
        }
        connection.clogged = false;
        self.flush(id);
        self.arrive(id)?;
        self.at(self.now, What::Deliver(id));
        Ok(())
    }

    /// Ends all faults of connections.
    pub(crate) fn heal_connections(&mut self) {
        for id in 0..self.connections.len() {
            let connection = &mut self.connections[id];
            if connection.up_frozen > self.now || connection.down_frozen > self.now {
                connection.up_frozen = connection.up_frozen.min(self.now);
                connection.down_frozen = connection.down_frozen.min(self.now);
            }
            let idle =
                connection.up.is_empty() && connection.down.is_empty() && !connection.clogged;
            if !idle {
                self.at(self.now, What::Thaw(id));
            }
        }
    }

    /// Days pass at once.
    pub(crate) fn shift_connections(&mut self, by: u64) {
        for c in &mut self.connections {
            if let Some(ends) = &mut c.login_ends {
                *ends += by;
            }
            for at in [
                &mut c.last_up,
                &mut c.last_down,
                &mut c.up_frozen,
                &mut c.down_frozen,
            ] {
                if *at > 0 {
                    *at += by;
                }
            }
            c.up.iter_mut().for_each(|(at, _)| *at += by);
            c.down.iter_mut().for_each(|(at, _)| *at += by);
        }
    }
}

/// The mutexes that a command may change, or whose queues it may change.
fn locks_of(command: &Command) -> &[Name] {
    match command {
        Command::Request(Request {
            target: Target::Mutex(names),
            verb,
            ..
        }) => match verb {
            Verb::Raise { .. } | Verb::Extend { .. } if names.one().is_some() => &[],
            _ => names.all(),
        },
        Command::Question(Question::EvictMutex(name)) => std::slice::from_ref(name),
        _ => &[],
    }
}

fn server_is_free(server: &super::server::Server) -> bool {
    server.up && !server.paused && !server.draining
}

fn brief(command: &Command) -> String {
    match command {
        Command::Admission(admission::Command::Handshake(h)) => format!(
            "HANDSHAKE {} {} {:?} {:?} u={} x={} known={:?}",
            h.masters, h.list, h.terms, h.vouch, h.used, h.witnessed, h.known
        ),
        Command::Request(request) => {
            let Request {
                target,
                entry,
                verb,
            } = request;
            let (name, entry) = (command.name(), short(entry.as_str()));
            format!("{name} {target:?} {entry} {verb:?}")
        }
        other => format!("{other:?}"),
    }
}

pub(crate) fn short(entry: &str) -> &str {
    entry.get(..6).unwrap_or(entry)
}

fn brief_answer(answer: &Answered) -> String {
    match answer {
        Ok(Answer::Admission(admission::Reply::Met(m))) => {
            let record = m.stored.record().map(ToString::to_string);
            format!(
                "met run {} {} {} open {}",
                m.server.run,
                m.server.role,
                record.unwrap_or_default(),
                m.open
            )
        }
        other => format!("{other:?}"),
    }
}

/// Formats an instant for a trace.
pub(crate) fn at(now: u64) -> String {
    format!("{:>14}", ms(now))
}

//! One simulated client: the real core. The simulation drives it by hand, as the driver does.

use std::{collections::BTreeMap, iter, sync::Arc};

use tokio::sync::mpsc::UnboundedReceiver;

use super::{
    channels::channel,
    clocks::Drifting,
    invariants::{Held, bounded, eviction, exclusion::Share, livelock, voting},
    network::Down,
    profile::{MS, SECOND, US, Watch},
    workload::Task,
    world::{What, World},
};
use crate::{
    base::{
        clock::{Clock, ManualClock, Tick},
        majority::majority,
        owner::{Chance, Label},
    },
    engine::{Core, Engine, Event, Status},
    node::{
        DialError, Disconnected, Incoming, Operation,
        admission::{Terms, record::THROWAWAY},
        answer::Answered,
        request::{Request, Target, Verb},
        session::Effect,
        settings::Settings,
        status::NodeState,
    },
};

/// One process.
pub(crate) struct Client {
    pub(crate) core: Core,
    pub(crate) engine: Engine,
    events: UnboundedReceiver<Event>,
    clock: Arc<ManualClock>,
    pub(crate) mono: Drifting,
    /// The error of its wall clock, µs.
    pub(crate) wall: i64,
    links: Vec<Link>,
    pub(crate) servers: Vec<usize>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) incarnation: u64,
    pub(crate) paused_until: Option<u64>,
    /// The total time for which it stood still.
    pub(crate) paused: u64,
    armed: Option<u64>,
    wake: u64,
    /// For each name: when each node last answered a vote.
    answered: BTreeMap<String, Vec<u64>>,
    /// The entries that it made and is not taking back, where a check needs them.
    pub(crate) entries: Vec<String>,
    /// For each server: until when the client cannot reach it.
    pub(crate) partitions: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Idle,
    Dialing(usize),
    Up(usize),
}

impl World {
    /// Makes a new process: the first one, or the successor of one that died.
    pub(crate) fn new_client(&mut self, index: usize, incarnation: u64) -> Client {
        let plan = self.plan.clients[index].clone();
        let clock = Arc::new(ManualClock::default());
        let ppm = self.dice.signed(-self.plan.ppm, self.plan.ppm);
        let mono = Drifting::new(self.now, self.dice.range(SECOND, 1000 * SECOND), ppm);
        let wall = self.dice.signed(plan.wall.0, plan.wall.1) * 1000;
        clock.set(Tick::from_nanos(mono.read(self.now)), self.wall(wall));
        let mut names: Vec<Arc<str>> = Vec::new();
        for server in &plan.servers {
            let twice = names.len();
            let name: Arc<str> = format!("s{server}").into();
            names.push(if names.contains(&name) {
                format!("s{server}-{twice}").into()
            } else {
                name
            });
        }
        let shared: Arc<dyn Clock> = Arc::clone(&clock) as Arc<dyn Clock>;
        let status = Arc::new(Status::new(Arc::clone(&shared), &names));
        let (engine, events) = Engine::new(status, shared);
        let is_throwaway = plan.list == THROWAWAY;
        let settings = Settings {
            nodes: names,
            node_timeout: self.plan.node_timeout,
            list: plan.list,
            ranks: Some((0..self.plan.clients[index].servers.len()).collect()),
            prefix: "quorate".into(),
            terms: self.terms_of(index),
            label: Label::new(&format!("c{index}.{incarnation}")).expect("a label"),
            channel: channel(index, incarnation),
            allow_eviction: false,
            rules: self.rules,
        };
        let core = engine.core(Arc::new(settings), Chance::seeded(self.dice.next()));
        // Locks on servers that are thrown away are another fleet's, and are not judged.
        let tasks = if is_throwaway { 0 } else { self.plan.tasks };
        let tasks = (0..tasks).map(|_| self.new_task(index, &engine)).collect();
        Client {
            core,
            engine,
            events,
            clock,
            mono,
            wall,
            links: vec![Link::Idle; plan.servers.len()],
            partitions: vec![0; self.plan.servers],
            servers: plan.servers,
            tasks,
            incarnation,
            paused_until: None,
            paused: 0,
            armed: None,
            wake: 0,
            answered: BTreeMap::new(),
            entries: Vec::new(),
        }
    }

    fn wall(&self, off: i64) -> u64 {
        (self.plan.base_wall_us + self.now / 1000).saturating_add_signed(off)
    }

    /// Sets the client's clocks to the time that they should show.
    pub(crate) fn set_clock(&self, c: usize) {
        let client = &self.clients[c];
        client.clock.set(
            Tick::from_nanos(client.mono.read(self.now)),
            self.wall(client.wall),
        );
    }

    /// Lets the process do everything there is to do, in the driver's order, and checks its leases.
    pub(crate) fn run_client(&mut self, c: usize) -> Held {
        if self.clients[c].paused_until.is_some() {
            return Ok(());
        }
        self.set_clock(c);
        // Requests that the tasks have begun since the last run.
        self.poll_tasks(c)?;
        loop {
            self.drive(c)?;
            // A call of several steps sends its next request when it is polled.
            if !self.poll_tasks(c)? && self.clients[c].events.is_empty() {
                break;
            }
        }
        self.observe(c)?;
        self.arm(c);
        let in_flight = self.clients[c].core.most_in_flight();
        self.stats.most_in_flight = self.stats.most_in_flight.max(in_flight);
        bounded::check(c, in_flight)
    }

    /// The terms that this client asks for.
    pub(crate) fn terms_of(&self, c: usize) -> Terms {
        self.plan.clients[c].terms.unwrap_or(self.plan.terms)
    }

    /// Checks that every master that should vote does so, for every client with a right configuration.
    pub(crate) fn all_vote(&mut self) -> Held {
        for c in 0..self.clients.len() {
            let total = self.clients[c].servers.len();
            let needed = match self.plan.watch {
                Watch::Majority => majority(total),
                Watch::All => total,
            };
            if !self.plan.clients[c].fit || self.clients[c].paused_until.is_some() {
                continue;
            }
            self.set_clock(c);
            let client = &self.clients[c];
            let states = client.core.states(client.clock.now());
            let voting = states.iter().filter(|s| **s == NodeState::Voting).count();
            voting::check(c, voting, needed, &format!("{states:?}"))?;
        }
        self.stats.watched += 1;
        Ok(())
    }

    fn drive(&mut self, c: usize) -> Held {
        let mut ticks = 0;
        loop {
            let mut busy = false;
            let events: Vec<Event> =
                iter::from_fn(|| self.clients[c].events.try_recv().ok()).collect();
            if !events.is_empty() {
                self.clients[c].core.events(events);
                busy = true;
            }
            busy |= self.carry_out(c);
            self.flush_links(c);
            self.clients[c].core.mark_written();
            busy |= self.poll_links(c)?;
            let client = &mut self.clients[c];
            let now = client.clock.now();
            let due = client.core.next_tick().is_some_and(|at| at <= now);
            if due {
                client.core.tick(now);
                ticks = if busy { 0 } else { ticks + 1 };
                livelock::check(c, ticks)?;
            }
            busy |= due;
            busy |= self.carry_out(c);
            if !busy {
                return Ok(());
            }
        }
    }

    fn carry_out(&mut self, c: usize) -> bool {
        let mut any = false;
        while let Some(effect) = self.clients[c].core.next_effect() {
            any = true;
            match effect {
                Effect::Dial(node) => {
                    let id = self.dial(c, node);
                    self.clients[c].links[node] = Link::Dialing(id);
                }
                Effect::Close(node) => self.leave(c, node),
                Effect::Send(node, operation, guard) => {
                    if let Link::Up(id) = self.clients[c].links[node] {
                        if self.plan.support {
                            self.note_entries(c, &operation);
                        }
                        self.send(id, (operation, guard));
                    }
                }
                Effect::LogIn(node) => {
                    if let Link::Up(id) = self.clients[c].links[node] {
                        self.log_in(id);
                    }
                }
                Effect::Withdraw(node) => {
                    if let Link::Up(id) = self.clients[c].links[node] {
                        let commands = self.withdraw(id);
                        self.stats.withdrawn += commands as u64;
                        self.clients[c].core.withdrawn(node, commands);
                    }
                }
            }
        }
        any
    }

    fn flush_links(&mut self, c: usize) {
        for node in 0..self.clients[c].links.len() {
            if let Link::Up(id) = self.clients[c].links[node] {
                self.flush(id);
            }
        }
    }

    fn leave(&mut self, c: usize, node: usize) {
        if let Link::Up(id) | Link::Dialing(id) = self.clients[c].links[node] {
            self.client_closes(id);
        }
        self.clients[c].links[node] = Link::Idle;
    }

    fn poll_links(&mut self, c: usize) -> Result<bool, super::invariants::Violation> {
        let mut any = false;
        for node in 0..self.clients[c].links.len() {
            while let Link::Dialing(id) | Link::Up(id) = self.clients[c].links[node] {
                let Some(down) = self.next_down(id) else {
                    break;
                };
                any = true;
                match down {
                    Down::Connected(client_id) => {
                        self.clients[c].links[node] = Link::Up(id);
                        let hears = self.connections[id].listens;
                        self.clients[c].core.connected(node, client_id, None, hears);
                        let login = self.login_read(id);
                        self.clients[c].core.came(node, login);
                    }
                    Down::Refused => {
                        self.clients[c].links[node] = Link::Idle;
                        let why = DialError::Unreachable("connection refused".into());
                        self.clients[c].core.dial_failed(node, &why);
                    }
                    Down::Closed => {
                        let dialing = self.clients[c].links[node] == Link::Dialing(id);
                        self.client_closes(id);
                        self.clients[c].links[node] = Link::Idle;
                        if dialing {
                            let why = DialError::Unreachable("closed".into());
                            self.clients[c].core.dial_failed(node, &why);
                        } else {
                            self.clients[c]
                                .core
                                .disconnected(node, &Disconnected("closed".into()));
                        }
                    }
                    said @ (Down::Answers(_) | Down::Push(_) | Down::LoggedIn(_)) => {
                        let incoming = self.read(c, node, id, said);
                        self.clients[c].core.came(node, incoming);
                    }
                }
                // The core's reaction may have to be carried out before it reads the next message.
                self.carry_out(c);
            }
        }
        Ok(any)
    }

    /// Reads this message and those that have arrived behind it. After an error the connection may be closed.
    fn read(&mut self, c: usize, node: usize, id: usize, first: Down) -> Vec<Incoming> {
        let mut incoming = Vec::new();
        let mut next = Some(first);
        while let Some(said) = next {
            let mut goes_on = true;
            match said {
                Down::Answers(answers) => {
                    goes_on = answers.iter().all(|(answer, _)| answer.is_ok());
                    for (answer, asked) in answers {
                        self.note_answer(c, node, &answer, &asked);
                        incoming.push(Incoming::Answer(answer));
                    }
                }
                Down::Push(push) => incoming.push(Incoming::Push(push)),
                Down::LoggedIn(true) => incoming.extend(self.login_read(id)),
                Down::LoggedIn(false) => {
                    self.connections[id].logging_in = false;
                    incoming.push(Incoming::LoggedIn(Err("WRONGPASS".into())));
                }
                Down::Connected(_) | Down::Refused | Down::Closed => {}
            }
            next = goes_on.then(|| self.next_said(id)).flatten();
        }
        incoming
    }

    pub(crate) fn dial_times_out(&mut self, id: usize) -> Held {
        let (c, node) = (self.connections[id].client, self.connections[id].node);
        let gone = self.connections[id].incarnation != self.clients[c].incarnation;
        if gone || self.clients[c].links[node] != Link::Dialing(id) {
            return Ok(());
        }
        if let Some(until) = self.clients[c].paused_until {
            self.at(until, What::DialTimeout(id));
            return Ok(());
        }
        self.set_clock(c);
        self.leave(c, node);
        let why = DialError::Unreachable("no answer in time".into());
        self.clients[c].core.dial_failed(node, &why);
        self.run_client(c)
    }

    /// A message arrived for its process.
    pub(crate) fn deliver(&mut self, id: usize) -> Held {
        let (c, wanted) = (self.connections[id].client, self.connections[id].wanted);
        if !wanted || self.connections[id].incarnation != self.clients[c].incarnation {
            return Ok(());
        }
        self.run_client(c)
    }

    pub(crate) fn wake(&mut self, c: usize, wake: u64) -> Held {
        if self.clients[c].wake != wake {
            return Ok(());
        }
        self.clients[c].armed = None;
        self.run_client(c)
    }

    /// Sets the alarm. It may ring late, and it may ring without a reason.
    fn arm(&mut self, c: usize) {
        let client = &self.clients[c];
        let Some(tick) = client.core.next_tick() else {
            return;
        };
        let at = client.mono.when(tick.nanos()).max(self.now);
        if client
            .armed
            .is_some_and(|armed| armed <= at && armed >= self.now)
        {
            return;
        }
        let late = if self.dice.percent(3) {
            self.dice.range(0, 3 * MS)
        } else {
            self.dice.range(0, 100 * US)
        };
        let client = &mut self.clients[c];
        client.armed = Some(at);
        client.wake += 1;
        let wake = client.wake;
        self.at(at + late, What::Wake(c, wake));
    }

    fn note_entries(&mut self, c: usize, operation: &Operation) {
        let entries = &mut self.clients[c].entries;
        let command = operation.command();
        let takes_or_frees = |request: &Request| request.takes() || request.frees();
        if let Some(entry) = command.entry_that(takes_or_frees) {
            // An entry that is being taken back does not support a lease any more.
            entries.retain(|known| known != entry.as_str());
        }
        if let Some(entry) = command.entry_that(Request::takes) {
            entries.push(entry.as_str().to_owned());
        }
    }

    fn note_answer(&mut self, c: usize, node: usize, answer: &Answered, asked: &Operation) {
        let name = asked.command().request().and_then(|request| {
            let counts = match &request.verb {
                Verb::Acquire { .. } => true,
                Verb::Raise { .. } => !matches!(request.target, Target::Slot(..)),
                _ => false,
            };
            counts.then(|| request.target.name().to_string())
        });
        if let Some(name) = name
            && answer.is_ok()
        {
            let nodes = self.clients[c].links.len();
            let times = self.clients[c]
                .answered
                .entry(name)
                .or_insert_with(|| vec![0; nodes]);
            times[node] = self.now + 1;
        }
    }

    /// The number of nodes that have answered a vote on this name since then.
    pub(crate) fn answered_since(&self, c: usize, name: &str, since: u64) -> usize {
        let times = self.clients[c].answered.get(name);
        times.map_or(0, |times| times.iter().filter(|at| **at > since).count())
    }

    /// Checks all leases of this client, as their holders might do.
    pub(crate) fn observe(&mut self, c: usize) -> Held {
        let (now, incarnation) = (self.now, self.clients[c].incarnation);
        let reading = self.clients[c].clock.now().nanos();
        let mut names: Vec<String> = Vec::new();
        let Self { checks, plan, .. } = self;
        for lease in &mut checks.leases {
            if lease.op.client != c || lease.op.incarnation != incarnation {
                continue;
            }
            let left = u64::try_from(lease.watch.validity().as_nanos()).unwrap_or(u64::MAX);
            let good = left > 0;
            let notice = u64::try_from(lease.watch.notice().as_nanos()).unwrap_or(u64::MAX);
            let over_at = (reading + left).saturating_sub(notice);
            lease.seen.observe(&lease.op, reading, good, over_at)?;
            if good {
                eviction::check(&lease.op, now, lease.over_by)?;
                if plan.exclusion && lease.share == Share::Alone {
                    checks
                        .gates
                        .entry(lease.op.name.clone())
                        .or_default()
                        .holder_writes(&lease.op)?;
                }
                names.push(lease.op.name.clone());
            }
        }
        for name in names {
            self.exclusive(&name, None)?;
        }
        self.no_more_than_the_limit()
    }

    /// Checks that the name does not have two holders now, each by its own clock.
    pub(crate) fn exclusive(&mut self, name: &str, just: Option<u64>) -> Held {
        let holders: Vec<usize> = self
            .checks
            .leases
            .iter()
            .filter(|l| l.op.name == name)
            .map(|l| l.op.client)
            .collect();
        if holders.len() < 2 || !(self.plan.exclusion || just.is_some()) {
            return Ok(());
        }
        for c in holders {
            self.set_clock(c);
        }
        let held = self.checks.exclusive(self.now, name, just);
        if self.plan.exclusion {
            return held;
        }
        self.stats.overlaps += u64::from(held.is_err());
        Ok(())
    }

    /// The process stands still until this instant.
    pub(crate) fn stop_client(&mut self, c: usize, until: u64) {
        if self.clients[c].paused_until.is_none() {
            self.clients[c].paused_until = Some(until);
            self.clients[c].paused += until - self.now;
            self.disturb(until);
            self.at(until, What::Resume(c, self.clients[c].incarnation));
        }
    }

    pub(crate) fn resume_client(&mut self, c: usize) -> Held {
        self.clients[c].paused_until = None;
        self.clients[c].armed = None;
        self.run_client(c)
    }

    /// The process ends in order: its requests are taken back, and the count of a quarantine is written.
    pub(crate) fn close(&mut self, c: usize) {
        if self.clients[c].paused_until.is_none() {
            self.set_clock(c);
            self.clients[c].core.close();
            self.carry_out(c);
        }
    }

    /// The process dies, and another takes its place.
    pub(crate) fn crash(&mut self, c: usize) {
        for node in 0..self.clients[c].links.len() {
            self.leave(c, node);
        }
        let incarnation = self.clients[c].incarnation;
        self.checks
            .leases
            .retain(|l| (l.op.client, l.op.incarnation) != (c, incarnation));
        let mut next = self.new_client(c, incarnation + 1);
        // The new process reaches only the servers that the old one reached.
        next.partitions.clone_from(&self.clients[c].partitions);
        self.clients[c] = next;
        self.begin_client(c);
    }

    /// The connection of a client to a node, if it is up.
    pub(crate) fn link(&self, c: usize, node: usize) -> Option<usize> {
        match self.clients[c].links[node] {
            Link::Up(id) => Some(id),
            _ => None,
        }
    }

    /// Until when the two cannot reach each other. This is now if they can.
    pub(crate) fn partitioned_until(&self, c: usize, server: usize) -> u64 {
        self.clients
            .get(c)
            .map_or(0, |client| client.partitions[server])
            .max(self.now)
    }
}

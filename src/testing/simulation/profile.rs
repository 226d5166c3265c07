//! The settings of schedules: how many clients and servers, for how long, with which faults. All settings are within
//! the assumptions of protocol §1 and §2. Otherwise the invariant that depends on the assumption is not checked, and
//! the reason is given.

mod lines;
mod scripts;
mod strangers;

use std::time::Duration;

use super::{
    clocks::MOST_PPM,
    dice::Dice,
    logins::Logins,
    script::Act,
    workload::{limits::Limits, rwlocks::Rwlocks, slots::Slots},
};
use crate::node::admission::Terms;

/// A kind of schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Profile {
    /// A network without faults, and many contenders.
    Calm,
    /// Three masters and every fault within the assumptions, short leases.
    Stormy,
    /// As `Stormy`, with five masters.
    Wide,
    /// Five masters. Many answers take about as long as a client waits for them.
    Sluggish,
    /// Clients with many tasks each, so most requests travel in batches.
    Crowded,
    /// Leases of a minute. Nothing expires, so everything that a lost message leaves behind is seen.
    Lasting,
    /// As `Lasting`. Connections break while requests travel, and the clean-up after them fails.
    Doubtful,
    /// As `Lasting`, and some servers stay full.
    Full,
    /// A fleet that nobody admitted: it waits for its quarantine.
    Fresh,
    /// Masters reboot with their data and with a wrong clock. Clients see different parts of the fleet.
    Reboot,
    /// Half of the clients see two of three masters, the other half another two. Everything depends on the master in
    /// the middle, and that one reboots with a wrong clock.
    Split,
    /// Operators bootstrap the fleet, no matter what has restarted.
    Bootstrap,
    /// Masters become replicas and masters again.
    Failover,
    /// Clients' wall clocks are set an hour ahead, and right again.
    FarAhead,
    /// A majority forgets, and its clocks go back while it is in quarantine.
    SetBack,
    /// The wall clock in µs gets one digit longer.
    Digits,
    /// Days pass, and nodes' clocks go back over an edge of the calendar.
    Calendar,
    /// One client lists the same server under two addresses.
    TwoAddresses,
    /// Clients in a crash loop count three masters where the others count five.
    OtherFleet,
    /// Clients in a crash loop ask for a `max_ttl` far greater than the others'.
    Huge,
    /// Clients in a crash loop ask for a `max_ttl` far smaller than the others'.
    Tiny,
    /// Clients in a crash loop list three masters, two of which are the others' masters.
    OtherList,
    /// Clients in a crash loop say that some or all of the masters are thrown away after the run.
    Throwaway,
    /// Clients in a crash loop ask for no margin, or for one of an hour.
    OtherMargin,
    /// A client asks for no margin and its clock is slow. It comes after others whose clocks are fast.
    NoMargin,
    /// An operator raises `max_ttl`, and breaks off at times. Clients that ask for more come after it.
    Raise,
    /// Clients that ask for no terms of their own have not heard of a raise yet when masters are emptied.
    Stale,
    /// All masters come back with what they had saved before a raise.
    RaisedDisk,
    /// Clients ask for more than the fleet's terms, and nobody raises them.
    Early,
    /// A client with a shorter `max_ttl` is alone with an emptied master. Then another master is emptied.
    Lonely,
    /// A power cut. One master comes back empty, and two come back with what they had saved before the lease. A client
    /// with a far shorter `max_ttl` finds them first.
    FromDisk,
    /// Three masters were stopped, and start again as three of five.
    Resized,
    /// Clients that count five masters find three that vote in a fleet of three, and two new ones.
    Grown,
    /// A client of another fleet looks at new masters and leaves. Then the fleet comes.
    Looked,
    /// A fleet watches new masters, and a client of another fleet comes and stays.
    Visited,
    /// Leases of ten minutes, so a master takes that long from nothing to voting.
    Minutes,
    /// Masters answer ever later, and never stop answering.
    Slow,
    /// Clients very often stand still for longer than the node timeout.
    Pauses,
    /// One server evicts keys.
    Evicting,
    /// Clocks outside of the assumptions for exclusion: they slew by up to a fifth, and nodes' clocks are stepped while
    /// leases live. Exclusion is not checked. It is checked that fenced updates are never lost.
    OutOfBounds,
    /// Operators free names under their holders.
    Operator,
    /// As `Operator`, where answers take long and masters are often out of reach.
    Evicted,
    /// Masters restart one after the other, each once the one before votes. Leases are held all the time.
    Rolling,
    /// Operators raise counters under a holder.
    Bumped,
    /// Each holder sends a second, shorter EXTEND. The library itself never sends one.
    Shortened,
    /// Many wait for one lock, without faults.
    Line,
    /// As `Line`. Pushes are lost, late, or come twice, and servers forget who listens.
    LinePushes,
    /// Many wait, with every kind of fault.
    LineStorm,
    /// Many wait, and masters become replicas of each other: pushes of one master arrive on connections to others.
    LineFailover,
    /// Many wait, and a stranger publishes hand-overs.
    LineForged,
    /// Many wait, and each client reaches other servers than the others, so the queues differ.
    LinePartial,
    /// Many wait. Their processes die, and servers do not notice. Waiters send their heartbeats rarely.
    LineGone,
    /// Many wait, and nothing expires: a waiter that leaves the queue must tell the servers.
    LineLasting,
    /// Many wait, and the servers' user loses the right to a command for a moment.
    LineRights,
    /// Many wait, and two clients reach only a minority for a long time.
    LineCutOff,
    /// Many ask for the slots of a semaphore, without faults.
    Slots,
    /// As `Slots`, and some ask for several slots at once.
    SlotsMany,
    /// As `Slots`. Pushes are lost, late, or come twice.
    SlotsPushes,
    /// Slots, with every kind of fault.
    SlotsStorm,
    /// Slots, and each client reaches other servers than the others.
    SlotsPartial,
    /// Slots, and processes die that hold them or wait for them.
    SlotsGone,
    /// Slots, and nothing expires.
    SlotsLasting,
    /// Operators change the limit of a semaphore, without faults.
    ResizedSlots,
    /// As `ResizedSlots`, and servers lose their memory meanwhile.
    ResizedStorm,
    /// Slots, and many answers take about as long as a client waits for them.
    SlotsSluggish,
    /// The limit of a semaphore is lowered while its slots are held by a bare majority.
    ShrunkSlots,
    /// A resize does not reach one master. Then another master is emptied.
    MissedResize,
    /// Programs are made with different limits of one semaphore.
    TwoLimits,
    /// Many ask for units of a rate limit, without faults.
    Limits,
    /// As `Limits`, with every kind of fault.
    LimitsStorm,
    /// As `LimitsStorm`, and each unit is a slot.
    LimitsSmall,
    /// As `LimitsStorm`, and units are taken in blocks.
    LimitsInBlocks,
    /// As `Limits`, and servers' clocks go back.
    LimitsBack,
    /// As `LimitsStorm`, and one server is far away: some of its answers come too late for their units to be used.
    LimitsFar,
    /// As `Limits`, and the programs have two different limits for one interval.
    TwoQuotas,
    /// As `LimitsStorm`, and the programs change the limit, each at a time of its own.
    QuotaChanged,
    /// Many read or write one lock, without faults.
    Rwlock,
    /// As `Rwlock`, and there are readers all the time, or writers all the time.
    RwlockCrowd,
    /// Many write one lock and some read it, without faults. Nobody is overtaken too often.
    RwlockWriters,
    /// As `Rwlock`. Pushes are lost, late, or come twice.
    RwlockPushes,
    /// Readers and writers, with every kind of fault.
    RwlockStorm,
    /// Readers and writers, and each client reaches other servers than the others.
    RwlockPartial,
    /// Processes die that read, write or wait.
    RwlockGone,
    /// Readers and writers, and nothing expires.
    RwlockLasting,
    /// Readers and writers, and many answers take about as long as a client waits for them.
    RwlockSluggish,
    /// Operators free read-write locks under their readers and writers.
    RwlockEvicted,
    /// Several names at once beside single ones, without faults.
    Several,
    /// As `Several`. Pushes are lost, late, or come twice.
    SeveralPushes,
    /// Several names at once, with every kind of fault.
    SeveralStorm,
    /// Several names at once, and each client reaches other servers than the others.
    SeveralPartial,
    /// Several names at once, and nothing expires.
    SeveralLasting,
    /// Several names at once, and many answers take about as long as a client waits for them.
    SeveralSluggish,
    /// Operators free single names of a set that is held together.
    SeveralEvicted,
    /// Logins expire, and the provider of credentials is slow. No login and no lease may end.
    Logins,
    /// As `Wide`, and servers end connections whose login expires: the provider is slow, wrong, or gone.
    LoginsStorm,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 94] = [
        Self::Calm,
        Self::Stormy,
        Self::Wide,
        Self::Sluggish,
        Self::Crowded,
        Self::Lasting,
        Self::Doubtful,
        Self::Full,
        Self::Fresh,
        Self::Reboot,
        Self::Split,
        Self::Bootstrap,
        Self::Failover,
        Self::FarAhead,
        Self::SetBack,
        Self::Digits,
        Self::Calendar,
        Self::TwoAddresses,
        Self::OtherFleet,
        Self::Huge,
        Self::Tiny,
        Self::OtherList,
        Self::Throwaway,
        Self::OtherMargin,
        Self::NoMargin,
        Self::Raise,
        Self::Stale,
        Self::Early,
        Self::Lonely,
        Self::FromDisk,
        Self::Resized,
        Self::Grown,
        Self::Looked,
        Self::Visited,
        Self::Minutes,
        Self::Slow,
        Self::Pauses,
        Self::Evicting,
        Self::OutOfBounds,
        Self::Operator,
        Self::Evicted,
        Self::Rolling,
        Self::Bumped,
        Self::Shortened,
        Self::Line,
        Self::LinePushes,
        Self::LineStorm,
        Self::LineFailover,
        Self::LineForged,
        Self::LinePartial,
        Self::LineGone,
        Self::LineLasting,
        Self::LineRights,
        Self::LineCutOff,
        Self::Slots,
        Self::SlotsMany,
        Self::SlotsPushes,
        Self::SlotsStorm,
        Self::SlotsPartial,
        Self::SlotsGone,
        Self::SlotsLasting,
        Self::ResizedSlots,
        Self::ResizedStorm,
        Self::SlotsSluggish,
        Self::ShrunkSlots,
        Self::MissedResize,
        Self::TwoLimits,
        Self::Limits,
        Self::LimitsStorm,
        Self::LimitsSmall,
        Self::LimitsInBlocks,
        Self::LimitsBack,
        Self::LimitsFar,
        Self::TwoQuotas,
        Self::QuotaChanged,
        Self::Rwlock,
        Self::RwlockCrowd,
        Self::RwlockWriters,
        Self::RwlockPushes,
        Self::RwlockStorm,
        Self::RwlockPartial,
        Self::RwlockGone,
        Self::RwlockLasting,
        Self::RwlockSluggish,
        Self::RwlockEvicted,
        Self::Several,
        Self::SeveralPushes,
        Self::SeveralStorm,
        Self::SeveralPartial,
        Self::SeveralLasting,
        Self::SeveralSluggish,
        Self::SeveralEvicted,
        Self::Logins,
        Self::LoginsStorm,
    ];

    /// Cases that are left unprotected on purpose: here even all rules together do not suffice.
    pub const LEFT_OVER: [Self; 1] = [Self::RaisedDisk];

    /// Returns true if schedules of this profile take several times as long as others.
    pub fn is_long(self) -> bool {
        use Profile::{
            Bootstrap, Crowded, Huge, Line, LineCutOff, LineForged, LineGone, LinePushes, Minutes,
            OtherList, OtherMargin, ResizedSlots, Rwlock, RwlockCrowd, RwlockGone, RwlockLasting,
            RwlockPartial, RwlockPushes, RwlockSluggish, RwlockWriters, Several, SeveralPushes,
            Slots, SlotsGone, SlotsMany, SlotsPushes, Throwaway, Tiny, TwoLimits,
        };
        matches!(
            self,
            Bootstrap
                | Crowded
                | Huge
                | Line
                | LineCutOff
                | LineForged
                | LineGone
                | LinePushes
                | Minutes
                | OtherList
                | OtherMargin
                | ResizedSlots
                | Rwlock
                | RwlockCrowd
                | RwlockGone
                | RwlockLasting
                | RwlockPartial
                | RwlockPushes
                | RwlockSluggish
                | RwlockWriters
                | Several
                | SeveralPushes
                | Slots
                | SlotsGone
                | SlotsMany
                | SlotsPushes
                | Throwaway
                | Tiny
                | TwoLimits
        )
    }

    /// The profile with this name.
    pub fn named(name: &str) -> Option<Self> {
        (Self::ALL.into_iter())
            .chain(Self::LEFT_OVER)
            .find(|profile| format!("{profile:?}") == name)
    }
}

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const DAY: u64 = 24 * 3600 * SECOND;
const TWO_DAYS_US: u64 = 2 * 24 * 3600 * 1_000_000;

/// The kinds of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A connection breaks. Messages that were sent are executed in part, or late.
    Cut,
    /// A connection stands still in both directions for a while.
    Freeze,
    /// A client and a server cannot reach each other for a while.
    Partition,
    /// The first two clients cannot reach a majority of the servers for a long time, and a minority stands still for
    /// all clients.
    CutOff,
    /// A server stands still, and then works through its sockets.
    Pause,
    /// A server dies and comes back without its memory.
    RestartEmpty,
    /// A server dies and comes back with what it saved some time ago.
    RestartOld,
    /// A server dies and comes back with everything it had.
    RestartKept,
    /// As above, with a wrong clock that is corrected while the server is in quarantine.
    RestartWrongClock,
    /// All servers that may die die at once, and come back without their memory.
    PowerCut,
    /// A server saves its data.
    Save,
    Flush,
    /// A server follows another master for a while, and is a master again after that.
    Demote,
    /// A server answers some commands with BUSY.
    Errors,
    /// A server is full.
    OutOfMemory,
    /// The user of all servers loses the right to a command.
    Withdraw,
    /// A server answers ever later.
    Slow,
    /// A server answers writes with READONLY.
    ReadOnly,
    /// SCRIPT FLUSH.
    ForgetScripts,
    /// A client's process stands still.
    Stop,
    /// A client's process dies, and another takes its place.
    Crash,
    /// A client's wall clock is set.
    SetWall,
    /// A server drops a lock to make room.
    Evict,
    /// An operator raises a counter under its holder.
    Bump,
    /// A holder's second EXTEND, with a shorter ttl.
    Shorten,
    /// Everything stands still for days.
    Days,
    /// A node's clock goes back by 2 s while no lease lives on it.
    StepBack,
    /// A node's clock is set, no matter which leases live on the node.
    Step,
    /// A node's clock goes back a little, and stays behind.
    SlipBack,
    /// A server forgets that a connection listens.
    Deafen,
    /// A stranger publishes that the lock is handed over to a waiter.
    Forge,
}

/// The state in which the fleet begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The first `fleet` servers vote.
    Admitted,
    /// They voted, and were restarted with everything they had.
    Restarted,
    Fresh,
    Bootstrapped,
}

/// How many masters must vote for every client with a right configuration. This counts after the last fault, a
/// quarantine and a reconnect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    Majority,
    All,
}

/// One client.
#[derive(Clone, Debug)]
pub(crate) struct ClientPlan {
    /// The servers that it lists.
    pub(crate) servers: Vec<usize>,
    /// True if its configuration is right. It must get the lock once the faults are over.
    pub(crate) fit: bool,
    /// The range of the error of its wall clock, in ms.
    pub(crate) wall: (i64, i64),
    /// Its word for the list of masters.
    pub(crate) list: String,
    /// The terms that it asks for, if they differ from the others'.
    pub(crate) terms: Option<Terms>,
    /// The length of its leases in ms, if it differs from the others'.
    pub(crate) ttl: Option<(u64, u64)>,
    /// A crash loop: how long every process lives, ns.
    pub(crate) lives: Option<(u64, u64)>,
    /// True if it is started by the client that has raised the fleet's terms.
    pub(crate) after_raise: bool,
    /// True if it asks for no lock.
    pub(crate) idle: bool,
    /// While faults go on, its wall clock is sometimes set this far ahead, ms. That is so far that it counts no node.
    pub(crate) strays: Option<(i64, i64)>,
}

/// The list word of every client with a right configuration.
pub(crate) const LIST: &str = "fleet";

/// The settings of one schedule.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) servers: usize,
    /// How many of them vote at the beginning, as a fleet of that size.
    pub(crate) fleet: usize,
    pub(crate) clients: Vec<ClientPlan>,
    pub(crate) tasks: usize,
    pub(crate) names: usize,
    pub(crate) terms: Terms,
    /// The terms that the fleet may be raised to.
    pub(crate) raised: Option<Terms>,
    pub(crate) node_timeout: Duration,
    /// The length of leases, in ms.
    pub(crate) ttl: (u64, u64),
    /// The longest time for which a lease is held, in thousandths of its ttl.
    pub(crate) hold: u64,
    /// The longest rest of a task between two locks, ns.
    pub(crate) think: u64,
    pub(crate) base_wall_us: u64,
    pub(crate) active: u64,
    pub(crate) fault_every: u64,
    /// How long faults go on, and how long they rest, ns.
    pub(crate) rounds: Option<(u64, u64)>,
    /// The time in ns after which a client that lost all its connections has met every master again.
    pub(crate) reconnect: u64,
    /// The acts of every such schedule, with their times.
    pub(crate) script: Vec<(u64, Act)>,
    pub(crate) watch: Watch,
    /// A memory is lost only while at least this many other masters vote.
    pub(crate) ripe: usize,
    /// The longest time until a server that died is back, ns.
    pub(crate) downtime: u64,
    pub(crate) faults: Vec<(u64, Fault)>,
    /// How many of a hundred connections break when a RAISE arrives on them.
    pub(crate) cut_raises: u64,
    /// Odd clients do not see the first server, even clients do not see the last.
    pub(crate) split: bool,
    /// Servers with a smaller index than this are never restarted.
    pub(crate) first_mortal: usize,
    /// Servers from this index on are never restarted either.
    pub(crate) first_safe: usize,
    /// The percentage of stand-stills that are longer than a client's patience.
    pub(crate) long: u64,
    /// The percentage of servers that answer some commands with BUSY just after their start.
    pub(crate) flaky_start: u64,
    /// The percentage of leases that are renewed for as long as they are held.
    pub(crate) renews: u64,
    /// The longest time that a message takes unless it is slow, ns.
    pub(crate) delay: u64,
    /// The last server's answers take this much longer, ns.
    pub(crate) far: u64,
    /// The percentages of pushes that are lost, come twice, and come late.
    pub(crate) pushes: (u64, u64, u64),
    /// The time in ns after the last fault within which a lock has a holder if a caller waits for it.
    pub(crate) stall: Option<u64>,
    /// The percentage of closed connections that a server believes to be alive for a while.
    pub(crate) gone: u64,
    /// The percentage of connections that may not listen.
    pub(crate) deaf: u64,
    /// How many of a thousand messages are slow, and the most by which they are late (ns).
    pub(crate) slow: (u64, u64),
    pub(crate) start: Start,
    pub(crate) abandons: bool,
    /// The longest lock-delay.
    pub(crate) lock_delay: Duration,
    /// True if a waiter never gives up.
    pub(crate) patient: bool,
    pub(crate) operators: bool,
    /// The percentage of calls that bootstrap.
    pub(crate) bootstraps: u64,
    /// A lease may be lost only if a master restarted within this time before or after its grant, ns.
    pub(crate) endures: Option<u64>,
    /// Nothing expires within the schedule, so no key may be left at its end.
    pub(crate) lasting: bool,
    /// Some servers stay full to the end.
    pub(crate) stays_full: bool,
    /// False where operators break exclusion by freeing names. Then only the tokens count.
    pub(crate) exclusion: bool,
    pub(crate) support: bool,
    pub(crate) evicting: Option<usize>,
    /// Clocks slew by at most this many millionths.
    pub(crate) ppm: i64,
    /// The settings of semaphores, if the tasks ask for slots.
    pub(crate) slots: Option<Slots>,
    /// The settings of rate limits, if the tasks ask for units.
    pub(crate) limits: Option<Limits>,
    /// The settings of read-write locks, if the tasks ask for these.
    pub(crate) rwlocks: Option<Rwlocks>,
    /// The percentage of calls that ask for several names at once.
    pub(crate) several: u64,
    /// The settings of logins, if they expire.
    pub(crate) logins: Option<Logins>,
}

pub(crate) const NETWORK: [(u64, Fault); 4] = [
    (6, Fault::Cut),
    (4, Fault::Freeze),
    (3, Fault::Partition),
    (4, Fault::Pause),
];
const REPLIES: [(u64, Fault); 3] = [
    (3, Fault::Errors),
    (2, Fault::ReadOnly),
    (2, Fault::ForgetScripts),
];
const CLIENTS: [(u64, Fault); 2] = [(5, Fault::Stop), (2, Fault::SetWall)];

/// A client's wall clock is at most this far behind the nodes' (M = 50 ms, and nodes are off by up to 15 ms). It may be
/// seconds ahead, but see [`Plan::keep_walls_near`].
const WALL: (i64, i64) = (-30, 3000);

impl Plan {
    pub(crate) fn base(dice: &mut Dice, servers: usize) -> Self {
        let clients = usize::try_from(dice.range(2, 4)).unwrap_or(2);
        let client = ClientPlan {
            servers: (0..servers).collect(),
            fit: true,
            wall: WALL,
            list: LIST.into(),
            terms: None,
            ttl: None,
            lives: None,
            after_raise: false,
            idle: false,
            strays: None,
        };
        Self {
            servers,
            fleet: servers,
            clients: vec![client; clients],
            tasks: usize::try_from(dice.range(1, 2)).unwrap_or(1),
            names: 1 + usize::from(dice.percent(20)),
            terms: Terms {
                max_ttl: Duration::from_millis(dice.range(300, 800)),
                margin: Duration::from_millis(50),
            },
            raised: None,
            node_timeout: Duration::from_millis(50),
            ttl: (150, 300),
            hold: 1500,
            think: 40 * MS,
            base_wall_us: 1_760_000_000_000_000,
            active: dice.range(1500, 3000) * MS,
            fault_every: 60 * MS,
            rounds: None,
            reconnect: 10 * SECOND,
            script: Vec::new(),
            watch: Watch::Majority,
            ripe: 0,
            downtime: 300 * MS,
            faults: [&NETWORK[..], &REPLIES, &CLIENTS].concat(),
            cut_raises: 0,
            split: false,
            first_mortal: 0,
            first_safe: servers,
            long: 15,
            flaky_start: 15,
            renews: 50,
            delay: 3 * MS,
            far: 0,
            slow: (20, 80 * MS),
            pushes: (0, 0, 0),
            stall: None,
            gone: 20,
            deaf: 0,
            start: Start::Admitted,
            abandons: true,
            lock_delay: Duration::MAX,
            patient: false,
            operators: false,
            bootstraps: 0,
            endures: None,
            lasting: false,
            stays_full: false,
            exclusion: true,
            support: false,
            evicting: None,
            ppm: MOST_PPM,
            slots: None,
            limits: None,
            rwlocks: None,
            several: 0,
            logins: None,
        }
    }

    pub(crate) fn and(mut self, faults: &[(u64, Fault)]) -> Self {
        self.faults.extend_from_slice(faults);
        self
    }

    pub(crate) fn only(mut self, faults: &[(u64, Fault)]) -> Self {
        self.faults = faults.to_vec();
        self
    }

    pub(crate) fn stormy(dice: &mut Dice, servers: usize) -> Self {
        let mut plan = Self::base(dice, servers).and(&[
            (2, Fault::RestartEmpty),
            (2, Fault::RestartOld),
            (1, Fault::RestartKept),
            (2, Fault::RestartWrongClock),
            (2, Fault::Save),
            (1, Fault::Flush),
            (1, Fault::Demote),
            (1, Fault::OutOfMemory),
            (1, Fault::Crash),
        ]);
        plan.fault_every = dice.range(40, 200) * MS;
        plan.node_timeout = Duration::from_millis([30, 50, 120][dice.index(3)]);
        plan
    }

    /// Z of the greatest terms that the fleet may have, ns.
    pub(crate) fn quarantine(&self) -> u64 {
        self.raised.unwrap_or(self.terms).quarantine() * MS
    }

    /// The longest lease, ns.
    pub(crate) fn longest(&self) -> u64 {
        let ttls = self.clients.iter().filter_map(|client| client.ttl);
        ttls.fold(self.ttl.1, |longest, ttl| longest.max(ttl.1)) * MS
    }

    /// After this long without a fault every client has met every master, and every memory votes, ns.
    pub(crate) fn recovery(&self) -> u64 {
        self.quarantine() + self.reconnect
    }

    pub(crate) fn lasting(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::base(dice, servers).and(&[(1, Fault::OutOfMemory)]);
        plan.terms.max_ttl = Duration::from_secs(120);
        plan.ttl = (60_000, 60_000);
        plan.hold = 1;
        plan.active = dice.range(700, 1500) * MS;
        plan.abandons = false;
        plan.lasting = true;
        plan
    }

    /// Keeps clients less than max_ttl ahead of the nodes. A client that is further ahead counts no node, so it would
    /// get no lock. Clients that stray are further ahead at times.
    fn keep_walls_near(&mut self) {
        let max_ttl = i64::try_from(self.terms.max_ttl.as_millis()).unwrap_or(i64::MAX);
        for client in &mut self.clients {
            client.wall.1 = client.wall.1.min(max_ttl - 50);
        }
    }

    pub(crate) fn new(profile: Profile, dice: &mut Dice) -> Self {
        let mut plan = Self::of(profile, dice);
        plan.keep_walls_near();
        plan
    }

    #[allow(clippy::too_many_lines)] // one arm per profile
    fn of(profile: Profile, dice: &mut Dice) -> Self {
        match profile {
            Profile::Calm => {
                let servers = [3, 5][dice.index(2)];
                let mut plan = Self::base(dice, servers).only(&[(1, Fault::SetWall)]);
                plan.slow = (0, 0);
                plan.support = true;
                plan
            }
            Profile::Stormy => Self::stormy(dice, 3),
            Profile::Wide => Self::stormy(dice, 5),
            Profile::Logins => {
                let servers = [3, 5][dice.index(2)];
                let mut plan = Self::base(dice, servers).only(&[]);
                let lasts = dice.range(1500, 3000) * MS;
                plan.logins = Some(Logins {
                    lasts,
                    takes: lasts / 60,
                    wrong: 0,
                    gone: 0,
                    always_work: true,
                });
                plan.slow = (0, 0);
                plan.active = 4 * lasts;
                plan.endures = Some(0);
                plan.renews = 100;
                plan.abandons = false;
                plan.hold = 5000;
                plan
            }
            Profile::LoginsStorm => {
                let mut plan = Self::stormy(dice, 5);
                plan.logins = Some(Logins {
                    lasts: dice.range(1100, 1800) * MS,
                    takes: dice.range(1, 120) * MS,
                    wrong: dice.range(0, 40),
                    gone: dice.range(0, 20),
                    always_work: false,
                });
                plan
            }
            Profile::Sluggish => {
                let mut plan = Self::base(dice, 5).only(&[
                    (6, Fault::Cut),
                    (2, Fault::Pause),
                    (3, Fault::SetWall),
                    (1, Fault::Stop),
                ]);
                plan.node_timeout = Duration::from_millis(20);
                plan.delay = dice.range(8, 20) * MS;
                plan.slow = (dice.range(40, 150), 70 * MS);
                plan.fault_every = dice.range(40, 100) * MS;
                plan.cut_raises = 35;
                plan.support = true;
                plan.clients.resize(4, plan.clients[0].clone());
                plan.hold = 300;
                plan.think = 20 * MS;
                plan.tasks = 2;
                plan
            }
            Profile::Crowded => {
                let mut plan = Self::stormy(dice, 3);
                plan.clients.truncate(2);
                plan.tasks = 8;
                plan.names = 6;
                plan.hold = 500;
                plan.think = 3 * MS;
                plan
            }
            Profile::Lasting => Self::lasting(dice),
            Profile::Doubtful => {
                let mut plan = Self::lasting(dice).only(&[(8, Fault::Cut), (6, Fault::Errors)]);
                plan.delay = dice.range(5, 20) * MS;
                plan.fault_every = dice.range(10, 40) * MS;
                plan
            }
            Profile::Full => {
                let mut plan = Self::lasting(dice).and(&[(12, Fault::OutOfMemory)]);
                plan.stays_full = true;
                plan
            }
            Profile::Fresh => {
                let mut plan = Self::stormy(dice, 3);
                plan.start = Start::Fresh;
                plan
            }
            Profile::Reboot => {
                let mut plan = Self::base(dice, 3).only(&[
                    (8, Fault::Partition),
                    (1, Fault::Cut),
                    (6, Fault::RestartWrongClock),
                    (2, Fault::RestartKept),
                    (3, Fault::RestartOld),
                    (2, Fault::Save),
                ]);
                plan.terms.max_ttl = Duration::from_millis(800);
                plan.ttl = (600, 800);
                plan.tasks = 1;
                plan.hold = 5000;
                plan.renews = 90;
                plan.active = 6 * SECOND;
                plan.downtime = 40 * MS;
                plan.long = 60;
                plan.flaky_start = 30;
                plan.think = 10 * MS;
                plan.fault_every = dice.range(150, 500) * MS;
                plan
            }
            Profile::Split => {
                let mut plan = Self::base(dice, 3).only(&[
                    (8, Fault::RestartWrongClock),
                    (1, Fault::RestartOld),
                    (1, Fault::Save),
                    (1, Fault::Cut),
                ]);
                plan.split = true;
                plan.first_mortal = 1;
                plan.first_safe = 2;
                plan.terms.max_ttl = Duration::from_millis(800);
                plan.ttl = (600, 800);
                plan.tasks = 1;
                plan.hold = 6000;
                plan.renews = 90;
                plan.active = 8 * SECOND;
                plan.downtime = 40 * MS;
                plan.think = 10 * MS;
                // Long enough for a quarantine to end.
                plan.fault_every = dice.range(900, 2000) * MS;
                plan
            }
            Profile::Bootstrap => {
                let mut plan = Self::base(dice, 3).and(&[
                    (4, Fault::RestartEmpty),
                    (8, Fault::PowerCut),
                    (2, Fault::RestartOld),
                    (2, Fault::Save),
                    (1, Fault::Flush),
                    (2, Fault::Crash),
                ]);
                plan.start = [Start::Bootstrapped, Start::Admitted][dice.index(2)];
                plan.bootstraps = 30;
                // This quarantine is longer than a bootstrap waits.
                plan.terms.max_ttl = Duration::from_secs(10);
                plan.ttl = (6_000, 10_000);
                plan.hold = 1000;
                plan.think = 2 * SECOND;
                plan.active = 25 * SECOND;
                plan.downtime = 3 * SECOND;
                // The rule about bootstraps depends on this: every living client reaches some master before a bootstrap
                // is done.
                plan.long = 0;
                plan.fault_every = dice.range(400, 1500) * MS;
                plan
            }
            Profile::Failover => {
                let mut plan = Self::base(dice, 3).and(&[
                    (12, Fault::Demote),
                    (3, Fault::Save),
                    (2, Fault::Crash),
                ]);
                plan.fault_every = dice.range(60, 200) * MS;
                plan
            }
            Profile::FarAhead => {
                let mut plan =
                    Self::base(dice, 3).and(&[(6, Fault::RestartEmpty), (8, Fault::SetWall)]);
                for client in &mut plan.clients {
                    client.strays = Some((3_600_000, 3_700_000));
                }
                plan.terms.max_ttl = Duration::from_millis(300);
                plan.active = 3 * SECOND;
                plan.fault_every = dice.range(80, 250) * MS;
                plan
            }
            Profile::SetBack => Self::set_back(dice),
            Profile::Digits => {
                let mut plan = Self::base(dice, 3);
                plan.base_wall_us = 1_000_000_000_000_000 - 300_000;
                plan.terms.max_ttl = Duration::from_millis(800);
                plan.names = 4;
                plan
            }
            Profile::Calendar => {
                let mut plan = Self::base(dice, 3).and(&[(8, Fault::StepBack), (4, Fault::Days)]);
                // The clock starts 1 s before such an edge.
                plan.base_wall_us = 10_188 * TWO_DAYS_US - 1_000_000;
                // The margin must cover a node that is 2 s back, because clients may be that far from it.
                plan.terms.margin = Duration::from_millis(50);
                // Clients that are seconds ahead must count such a node.
                plan.terms.max_ttl = Duration::from_millis(5_100);
                plan.hold = 500;
                plan.think = 120 * MS;
                plan.fault_every = dice.range(80, 250) * MS;
                plan
            }
            Profile::TwoAddresses => {
                let mut plan = Self::base(dice, 3).only(&[
                    (6, Fault::Partition),
                    (1, Fault::Cut),
                    (1, Fault::Pause),
                ]);
                plan.clients[0].servers = vec![0, 1, 1];
                plan.clients[0].fit = false;
                plan.hold = 5000;
                plan.fault_every = dice.range(50, 200) * MS;
                plan
            }
            Profile::OtherFleet => Self::other_fleet(dice),
            Profile::Huge => Self::huge(dice),
            Profile::Tiny => Self::tiny(dice),
            Profile::OtherList => Self::other_list(dice),
            Profile::Throwaway => Self::throwaway(dice),
            Profile::OtherMargin => Self::other_margin(dice),
            Profile::NoMargin => Self::no_margin(dice),
            Profile::Raise => Self::raise(dice),
            Profile::Stale => Self::stale(dice),
            Profile::RaisedDisk => Self::raised_disk(dice),
            Profile::Early => Self::early(dice),
            Profile::Lonely => Self::lonely(dice),
            Profile::FromDisk => Self::from_disk(dice),
            Profile::Resized => Self::resized(dice),
            Profile::Grown => Self::grown(dice),
            Profile::Looked => Self::looked(dice),
            Profile::Visited => Self::visited(dice),
            Profile::Minutes => Self::minutes(dice),
            Profile::Slow => Self::slow(dice),
            Profile::Pauses => Self::pauses(dice),
            Profile::Evicting => {
                let mut plan = Self::base(dice, 3).and(&[(30, Fault::Evict)]);
                plan.evicting = Some(dice.index(3));
                plan
            }
            Profile::OutOfBounds => {
                let servers = [3, 5][dice.index(2)];
                let mut plan = Self::base(dice, servers).and(&[(12, Fault::Step)]);
                plan.ppm = 200_000;
                // With this max_ttl most steps are small enough that the node is still counted.
                plan.terms.max_ttl = Duration::from_millis(2_500);
                for client in &mut plan.clients {
                    client.wall = (-30, 300);
                }
                plan.exclusion = false;
                plan.hold = 3000;
                plan
            }
            Profile::Operator => {
                let mut plan = Self::base(dice, 3);
                plan.operators = true;
                plan.exclusion = false;
                plan.hold = 3000;
                plan
            }
            Profile::Evicted => {
                let mut plan = Self::base(dice, 3).only(&[
                    (10, Fault::Partition),
                    (2, Fault::Cut),
                    (1, Fault::SetWall),
                ]);
                plan.operators = true;
                plan.exclusion = false;
                plan.names = 1;
                plan.renews = 100;
                plan.hold = 5000;
                plan.delay = 15 * MS;
                plan.slow = (100, 80 * MS);
                plan.node_timeout = Duration::from_millis(120);
                plan
            }
            Profile::Rolling => Self::rolling(dice),
            Profile::Bumped => {
                let mut plan = Self::base(dice, 3).and(&[(60, Fault::Bump)]);
                plan.fault_every = 6 * MS;
                plan.support = true;
                plan
            }
            Profile::Shortened => {
                let mut plan = Self::base(dice, 3).and(&[(60, Fault::Shorten)]);
                plan.fault_every = 10 * MS;
                plan.hold = 3000;
                plan
            }
            Profile::Line => Self::line(dice),
            Profile::LinePushes => Self::line_pushes(dice),
            Profile::LineStorm => Self::line_storm(dice),
            Profile::LineFailover => Self::line_failover(dice),
            Profile::LineForged => Self::line(dice).only(&[(1, Fault::Forge)]),
            Profile::LinePartial => Self::line_partial(dice),
            Profile::LineGone => Self::line_gone(dice),
            Profile::LineLasting => Self::line_lasting(dice),
            Profile::LineRights => Self::line_rights(dice),
            Profile::LineCutOff => Self::line_cut_off(dice),
            Profile::Slots => Self::slots(dice),
            Profile::SlotsMany => Self::slots_many(dice),
            Profile::SlotsPushes => Self::slots_pushes(dice),
            Profile::SlotsStorm => Self::slots_storm(dice),
            Profile::SlotsPartial => Self::slots_partial(dice),
            Profile::SlotsGone => Self::slots_gone(dice),
            Profile::SlotsLasting => Self::slots_lasting(dice),
            Profile::ResizedSlots => Self::resized_slots(dice),
            Profile::ResizedStorm => Self::resized_storm(dice),
            Profile::SlotsSluggish => Self::slots_sluggish(dice),
            Profile::ShrunkSlots => Self::shrunk_slots(dice),
            Profile::MissedResize => Self::missed_resize(dice),
            Profile::TwoLimits => Self::two_limits(dice),
            Profile::Limits => Self::limits(dice),
            Profile::LimitsStorm => Self::limits_storm(dice),
            Profile::LimitsSmall => Self::limits_small(dice),
            Profile::LimitsInBlocks => Self::limits_in_blocks(dice),
            Profile::LimitsBack => Self::limits_back(dice),
            Profile::LimitsFar => Self::limits_far(dice),
            Profile::TwoQuotas => Self::two_quotas(dice),
            Profile::QuotaChanged => Self::quota_changed(dice),
            Profile::Rwlock => Self::rwlocks(dice),
            Profile::RwlockCrowd => Self::rwlock_crowd(dice),
            Profile::RwlockWriters => Self::rwlock_writers(dice),
            Profile::RwlockPushes => Self::rwlock_pushes(dice),
            Profile::RwlockStorm => Self::rwlock_storm(dice),
            Profile::RwlockPartial => Self::rwlock_partial(dice),
            Profile::RwlockGone => Self::rwlock_gone(dice),
            Profile::RwlockLasting => Self::rwlock_lasting(dice),
            Profile::RwlockSluggish => Self::rwlock_sluggish(dice),
            Profile::RwlockEvicted => Self::rwlock_evicted(dice),
            Profile::Several => Self::several_calm(dice),
            Profile::SeveralPushes => Self::several_pushes(dice),
            Profile::SeveralStorm => Self::several_storm(dice),
            Profile::SeveralPartial => Self::several_partial(dice),
            Profile::SeveralLasting => Self::several_lasting(dice),
            Profile::SeveralSluggish => Self::several_sluggish(dice),
            Profile::SeveralEvicted => Self::several_evicted(dice),
        }
    }
}

impl Fault {
    /// Returns true if the fault does not affect any promise.
    pub(crate) fn is_harmless(self) -> bool {
        matches!(self, Self::SetWall | Self::Deafen | Self::CutOff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_names_round_trip() {
        for profile in Profile::ALL {
            assert_eq!(Profile::named(&format!("{profile:?}")), Some(profile));
            let plan = Plan::new(profile, &mut Dice::new(1));
            let longest = Duration::from_millis(plan.ttl.1);
            assert!(longest <= plan.terms.max_ttl, "{profile:?}");
        }
        assert_eq!(Profile::named("Nice"), None);
    }
}

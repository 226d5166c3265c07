//! The rules that keep the protocol safe, one name each.
//!
//! Every rule prevents a trap of protocol §10. In a normal build all rules are on. A build with `test-util` can switch
//! one off, and the simulation must then find what the trap says.

#![cfg_attr(not(feature = "test-util"), allow(unreachable_pub))]

/// One rule. The code that enforces it asks `Rules::hold` where the rule matters.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
// Without the switches some rules are never named.
#[cfg_attr(not(any(test, feature = "test-util")), allow(dead_code))]
pub enum Rule {
    /// A token needs Q equal counters, after a raise if needed. The greatest counter seen is not enough.
    EqualTokens,
    /// A raise counts only if the counter is exactly the token.
    ExactAck,
    /// The validity is checked after the last vote that counts.
    ValidityAfterVote,
    /// Every attempt has a new owner.
    FreshOwner,
    /// An extension counts only while the old validity lasts.
    ExtendInTime,
    /// An extension never shortens a lease.
    NeverShorten,
    /// An extension never re-creates a key.
    NeverRecreate,
    /// A node that may not vote obeys no extension and no repair: every script checks the guard.
    Guard,
    /// A lease is put back on nodes that lost it.
    Repair,
    /// An evicted lock is not put back.
    EvictionLasts,
    /// A memory does not vote before it was watched for a whole quarantine.
    Quarantine,
    /// A restart is recognised by run and record, not by asking whether the node is empty.
    RunAndRecord,
    /// The quarantine is counted by clients' clocks, not by the node's clock.
    WitnessedByClients,
    /// Nothing is sent on a connection before the answer to its handshake was read.
    HandshakeFirst,
    /// A rollback goes to every node that was asked, not only to those that granted.
    ReleaseEverywhere,
    /// `bootstrap` is refused if another node votes.
    BootstrapOnlyNew,
    /// A proposal far ahead is capped, and not ignored.
    ProposalCapped,
    /// A client does not count a node whose clock is more than `max_ttl` behind the client's.
    ClockNotBehind,
    /// Counters are compared as numbers.
    NumericCounters,
    /// Numbers are written with all their digits.
    AllDigits,
    /// Old counters are forgotten by age, not by the calendar.
    RotateByAge,
    /// An ACQUIRE is never sent twice.
    AcquireOnce,
    /// RELEASE deletes before any other write.
    DeleteFirst,
    /// A RELEASE that was not answered is sent again.
    ReleaseUntilAnswered,
    /// A RELEASE may be answered while an older connection may still bring its ACQUIRE. It is then sent again behind
    /// the CLIENT KILL of that connection.
    ReleaseBehindKill,
    /// An error does not count as an answer, and never as a refusal.
    ErrorIsNoAnswer,
    /// CLIENT KILL goes only to the run that gave the id.
    KillSameRunOnly,
    /// Two addresses of one server are one vote.
    OneServerOneVote,
    /// Another number of masters means another fleet.
    SameFleet,
    /// A server that evicts is refused.
    NoEviction,
    /// Only records that vote teach their terms.
    OnlyVotersTeach,
    /// A client that sees voting nodes replaces a record that does not vote, if it is of another fleet or asks for
    /// more.
    VoucherReplaces,
    /// A record that does not vote, and that nobody vouched for, gives way to another fleet.
    UnusedGivesWay,
    /// Such a record does not give way while a client of its own fleet is there.
    VisitedStays,
    /// A record of throw-away servers counts as none for every other fleet, even if it votes. Their clients replace no
    /// record of another fleet.
    ThrowawayGivesWay,
    /// A client that sees no voting node does not change a record that was vouched for.
    StrangersChangeNothing,
    /// A client that sees no majority witnesses nothing.
    MajorityInSight,
    /// A client stops if it sees a voting node of another fleet.
    OtherFleetStops,
    /// Another list of masters means another fleet.
    SameList,
    /// A record of another run counts as missing, whatever it says.
    RunFirst,
    /// Greater terms are used only once the whole fleet has them.
    RaiseBeforeUse,
    /// The handshake answers with the greater w, even if it does not write it.
    GreaterW,
    /// Z follows from the M in the record.
    MarginInRecord,
    /// A memory that comes back from a disk keeps the terms under which it voted.
    DiskVouches,
    /// Only a majority of voting nodes lowers terms that were vouched for.
    LoneVoterLowers,
    /// `bootstrap` is refused if the fleet was used.
    BootstrapUnused,
    /// `open` carries the id of its node's record.
    OwnGuard,
    /// A hand-over counts from the sending of the request that it answers, not from its receipt.
    PushFromItsRequest,
    /// A hand-over names the memory that made it, because servers replicate what they publish.
    PushCarriesGuard,
    /// A grant that was given back is over: a later message about it is not a vote.
    YieldedIsOver,
    /// A waiter that holds only some nodes gives all of them back to an earlier waiter.
    YieldAll,
    /// A waiter that joins the queue without an attempt is refused if it would come before others.
    OnlyLast,
    /// A waiter asks again and again.
    JoinAgain,
    /// A release goes to every node that may know its owner, also to those that never granted.
    LeaveEverywhere,
    /// The next waiter in the queue is told how long the head may take.
    NextIsTold,
    /// A waiter that has joined the queue asks again soon. Until then it need not be told that it is next.
    SecondAsk,
    /// A waiter that reaches no majority leaves the queues of the nodes that it does reach.
    StandAside,
    /// A semaphore has numbered slots, each with its own majority. No node counts holders for itself.
    NumberedSlots,
    /// A vote for a slot is over once a request that may take it back was sent to that node after the vote's request.
    MoveForgets,
    /// The limit is checked when a grant is complete.
    LimitAtGrant,
    /// A newer limit replaces an older one.
    GreaterVersion,
    /// A resize has succeeded when every node has answered.
    ResizeAll,
    /// Slots that are taken above a slot are counted over all nodes that voted for it.
    CountAbove,
    /// The first holder of a slot tells every node the limit.
    SettleLimit,
    /// A slot that is taken in place of another gets a token of its own.
    MoveMints,
    /// A waiter that gives slots back gives back all that it has.
    YieldAllSlots,
    /// A waiter for a slot queues with one ticket, the same on all nodes.
    SameTicket,
    /// A unit counts in every interval that it lies in, not in an interval fixed by the clock.
    SlidingInterval,
    /// A memory gives out no unit before it was watched for a whole interval.
    HistoryOfUnits,
    /// A unit that was counted before the clock went back is not given back.
    EraOfUnits,
    /// Units that are given back are given back once.
    RefundOnce,
    /// A unit's age counts from the sending of the request for it, not from the answer.
    AgeFromSending,
    /// Different limits of one interval count the same units.
    SharedLedger,
    /// Each reader of a read-write lock has an end of its own.
    ReadersOwnTtl,
    /// A writer that waits keeps new readers out.
    WriterIntent,
    /// Writers that were refused queue among themselves.
    WritersQueue,
    /// Readers that a writer has kept out are let in before the next writer.
    ReaderWindow,
    /// A reader's epoch stands on Q nodes, after a raise if needed.
    EpochStands,
    /// A lease of a read-write lock is put back only if nobody on the node conflicts with it.
    RepairAlone,
    /// A writer becomes a reader in one step, so nobody writes in between.
    DowngradeInPlace,
    /// Of several names a node gives all or none.
    AllOrNone,
    /// The token of several names is greater than the last one of each name.
    TokenOfAll,
    /// A connection logs in again before its login expires.
    LoginRenewed,
    /// One node logs in again at a time.
    OneLoginAtATime,
    /// A hand-over is written before it is published: a waiter counts what it hears.
    WriteThenPublish,
    /// A script that fails halfway leaves no key without an expiry.
    NothingHalfWritten,
}

#[cfg(any(test, feature = "test-util"))]
impl Rule {
    /// Every rule.
    pub const EVERY: [Self; 86] = [
        Self::EqualTokens,
        Self::ExactAck,
        Self::ValidityAfterVote,
        Self::FreshOwner,
        Self::ExtendInTime,
        Self::NeverShorten,
        Self::NeverRecreate,
        Self::Guard,
        Self::Repair,
        Self::EvictionLasts,
        Self::Quarantine,
        Self::RunAndRecord,
        Self::WitnessedByClients,
        Self::HandshakeFirst,
        Self::ReleaseEverywhere,
        Self::BootstrapOnlyNew,
        Self::ProposalCapped,
        Self::ClockNotBehind,
        Self::NumericCounters,
        Self::AllDigits,
        Self::RotateByAge,
        Self::AcquireOnce,
        Self::DeleteFirst,
        Self::ReleaseUntilAnswered,
        Self::ReleaseBehindKill,
        Self::ErrorIsNoAnswer,
        Self::KillSameRunOnly,
        Self::OneServerOneVote,
        Self::SameFleet,
        Self::NoEviction,
        Self::OnlyVotersTeach,
        Self::VoucherReplaces,
        Self::UnusedGivesWay,
        Self::VisitedStays,
        Self::ThrowawayGivesWay,
        Self::StrangersChangeNothing,
        Self::MajorityInSight,
        Self::OtherFleetStops,
        Self::SameList,
        Self::RunFirst,
        Self::RaiseBeforeUse,
        Self::GreaterW,
        Self::MarginInRecord,
        Self::DiskVouches,
        Self::LoneVoterLowers,
        Self::BootstrapUnused,
        Self::OwnGuard,
        Self::PushFromItsRequest,
        Self::PushCarriesGuard,
        Self::YieldedIsOver,
        Self::YieldAll,
        Self::OnlyLast,
        Self::JoinAgain,
        Self::LeaveEverywhere,
        Self::NextIsTold,
        Self::SecondAsk,
        Self::StandAside,
        Self::NumberedSlots,
        Self::MoveForgets,
        Self::LimitAtGrant,
        Self::GreaterVersion,
        Self::ResizeAll,
        Self::CountAbove,
        Self::SettleLimit,
        Self::MoveMints,
        Self::YieldAllSlots,
        Self::SameTicket,
        Self::SlidingInterval,
        Self::HistoryOfUnits,
        Self::EraOfUnits,
        Self::RefundOnce,
        Self::AgeFromSending,
        Self::SharedLedger,
        Self::ReadersOwnTtl,
        Self::WriterIntent,
        Self::WritersQueue,
        Self::ReaderWindow,
        Self::EpochStands,
        Self::RepairAlone,
        Self::DowngradeInPlace,
        Self::AllOrNone,
        Self::TokenOfAll,
        Self::LoginRenewed,
        Self::OneLoginAtATime,
        Self::WriteThenPublish,
        Self::NothingHalfWritten,
    ];
}

/// The rules that are on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    #[cfg(any(test, feature = "test-util"))]
    off: u128,
}

impl Rules {
    /// All rules.
    pub const ALL: Self = Self {
        #[cfg(any(test, feature = "test-util"))]
        off: 0,
    };

    /// All rules but one.
    #[cfg(any(test, feature = "test-util"))]
    pub const fn without(rule: Rule) -> Self {
        Self {
            off: 1_u128 << rule as u64,
        }
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(crate) const fn hold(self, rule: Rule) -> bool {
        self.off & (1_u128 << rule as u64) == 0
    }

    #[cfg(not(any(test, feature = "test-util")))]
    pub(crate) const fn hold(self, _: Rule) -> bool {
        true
    }
}

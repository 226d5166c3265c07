//! The rules that keep the protocol safe, one name each.
//!
//! Every rule stands against a trap of protocol §10. Always on in a normal build; a build with
//! `test-util` can switch one off, and the simulation must then find what the trap says.

#![cfg_attr(not(feature = "test-util"), allow(unreachable_pub))]

/// One rule. The code that enforces it asks `Rules::hold` at the place it matters.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
// Without the switches some rules are never named.
#[cfg_attr(not(any(test, feature = "test-util")), allow(dead_code))]
pub enum Rule {
    /// A token needs Q equal counters, by a raise if need be; the greatest seen is not enough.
    EqualTokens,
    /// A raise counts only if the counter is exactly the token.
    ExactAck,
    /// The validity is looked at after the last vote that counts.
    ValidityAfterVote,
    /// Every attempt has a new owner.
    FreshOwner,
    /// An extension counts only while the old validity lasts.
    ExtendInTime,
    /// An extension never shortens.
    NeverShorten,
    /// An extension never re-creates.
    NeverRecreate,
    /// A node that may not vote obeys no extension and no repair: the guard in every script.
    Guard,
    /// A lease is put back where it was lost.
    Repair,
    /// What was evicted is not put back.
    EvictionLasts,
    /// A memory does not vote before it was watched for a whole quarantine.
    Quarantine,
    /// Restart is told by run and record, not by "is it empty".
    RunAndRecord,
    /// The quarantine is counted by clients' clocks, not by the node's.
    WitnessedByClients,
    /// Nothing travels on a connection whose handshake has not been read.
    HandshakeFirst,
    /// A rollback goes to every node that was asked, not only to those that granted.
    ReleaseEverywhere,
    /// `bootstrap` is refused where a neighbour votes.
    BootstrapOnlyNew,
    /// A proposal far ahead is capped, never ignored.
    ProposalCapped,
    /// A node whose clock is more than `max_ttl` behind a client's is not counted by it.
    ClockNotBehind,
    /// Counters are compared as numbers.
    NumericCounters,
    /// Numbers are written with all their digits.
    AllDigits,
    /// Old counters go by age, not by the calendar.
    RotateByAge,
    /// An ACQUIRE is never sent twice.
    AcquireOnce,
    /// RELEASE deletes before it does anything else.
    DeleteFirst,
    /// A RELEASE that was not answered is sent again.
    ReleaseUntilAnswered,
    /// A RELEASE that was answered while an older connection may still bring its ACQUIRE is sent again behind the
    /// CLIENT KILL of that connection.
    ReleaseBehindKill,
    /// An error is no answer, never a refusal.
    ErrorIsNoAnswer,
    /// CLIENT KILL goes to the run that gave the id.
    KillSameRunOnly,
    /// Two addresses of one server are one vote.
    OneServerOneVote,
    /// Another number of masters is another fleet.
    SameFleet,
    /// A server that evicts is refused.
    NoEviction,
    /// Only records that vote teach their terms.
    OnlyVotersTeach,
    /// Who sees voters replaces a record that does not vote and is not of its fleet, or asks for more.
    VoucherReplaces,
    /// A record that does not vote, and that nobody vouched for, gives way to another fleet.
    UnusedGivesWay,
    /// It does not while a client of its own fleet is there.
    VisitedStays,
    /// Who sees no voter changes no record that was vouched for.
    StrangersChangeNothing,
    /// Nobody witnesses who does not see a majority.
    MajorityInSight,
    /// A voter of another fleet stops a client.
    OtherFleetStops,
    /// Another list of masters is another fleet.
    SameList,
    /// A record of another run is none, whatever else it says.
    RunFirst,
    /// Greater terms are in use only once the whole fleet has them.
    RaiseBeforeUse,
    /// The handshake answers with the greater w, though it was not worth a write.
    GreaterW,
    /// Z follows from the M in the record.
    MarginInRecord,
    /// A memory that comes back from a disk keeps the terms under which it voted.
    DiskVouches,
    /// Only a majority of voters lowers what was vouched for.
    LoneVoterLowers,
    /// `bootstrap` is refused where the fleet was used.
    BootstrapUnused,
    /// `open` carries the id of its node's record.
    OwnGuard,
    /// A hand-over counts from the sending of the request that it answers, not from its receipt.
    PushFromItsRequest,
    /// A hand-over names the memory that made it: servers replicate what they publish.
    PushCarriesGuard,
    /// What was given back is over: a later word about that grant is no vote.
    YieldedIsOver,
    /// Who holds some nodes gives all of them back to one who stands before it.
    YieldAll,
    /// Who asks for a place without having asked for the lock is refused where it would come before others.
    OnlyLast,
    /// Who waits asks again and again.
    JoinAgain,
    /// A release tells every node that may know its owner, also those that never granted.
    LeaveEverywhere,
    /// The next in line is told for how long the head may take.
    NextIsTold,
    /// Who has come in line asks again soon: until then it need not be told that it is next.
    SecondAsk,
    /// Who waits and reaches no majority leaves the line of the nodes that it does reach.
    StandAside,
    /// A semaphore is numbered slots, each with its own majority: no node counts holders for itself.
    NumberedSlots,
    /// A vote for a slot is over when something that may take it back was sent to that node after it was asked for.
    MoveForgets,
    /// The limit is looked at when a grant is complete.
    LimitAtGrant,
    /// A newer limit takes the place of an older one.
    GreaterVersion,
    /// A resize has succeeded when every node has answered.
    ResizeAll,
    /// What is taken above a slot is counted over all nodes that voted for it.
    CountAbove,
    /// Who is the first to hold a slot tells every node the limit.
    SettleLimit,
    /// A slot that is taken in place of another gets a token of its own.
    MoveMints,
    /// Who gives slots back gives back all that it has.
    YieldAllSlots,
    /// Who waits for a slot stands in line with one ticket, the same on all nodes.
    SameTicket,
    /// A unit counts in every interval that it lies in, not in that of the clock.
    SlidingInterval,
    /// A memory gives out no unit before it was watched for a whole interval.
    HistoryOfUnits,
    /// A unit that was counted before the clock went back is not given back.
    EraOfUnits,
    /// What was given back is given back once.
    RefundOnce,
    /// A unit's age counts from the sending of the request for it, not from the answer.
    AgeFromSending,
    /// Each reader of a read-write lock has an end of its own.
    ReadersOwnTtl,
    /// A writer that waits keeps new readers out.
    WriterIntent,
    /// Writers that were refused queue among each other.
    WritersQueue,
    /// Readers that a writer has kept out are let in before the next writer.
    ReaderWindow,
    /// A reader's epoch stands on Q nodes: by a raise, if need be.
    EpochStands,
    /// A lease of a read-write lock is put back only where nobody stands against it.
    RepairAlone,
    /// A writer becomes a reader in one step: nobody writes in between.
    DowngradeInPlace,
    /// Of several names a node gives all or none.
    AllOrNone,
    /// The token of several names is newer than the last one of each.
    TokenOfAll,
}

#[cfg(any(test, feature = "test-util"))]
impl Rule {
    /// Every rule.
    pub const EVERY: [Self; 80] = [
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
        Self::ReadersOwnTtl,
        Self::WriterIntent,
        Self::WritersQueue,
        Self::ReaderWindow,
        Self::EpochStands,
        Self::RepairAlone,
        Self::DowngradeInPlace,
        Self::AllOrNone,
        Self::TokenOfAll,
    ];
}

/// Which rules are on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    #[cfg(any(test, feature = "test-util"))]
    off: u128,
}

impl Rules {
    /// All of them.
    pub const ALL: Self = Self {
        #[cfg(any(test, feature = "test-util"))]
        off: 0,
    };

    /// All but one.
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

//! The errors of the library, by what the caller can do about each.

use std::{fmt, time::Duration};

use crate::{
    Report,
    base::text::seconds,
    report::{Alone, Missing, answered},
};

/// The reason why an operation did not succeed.
///
/// The variants differ in what the caller can do about them. [`is_retryable`](Self::is_retryable) and
/// [`retry_after`](Self::retry_after) say whether and when to try again.
///
/// The `Display` of an error is one line without any node's address. It is for logs and operators: it names the lock,
/// says how many nodes fail and why, and that of `Held` shows the holder's label, by default `host:pid`. A program may
/// choose any label, so escape it where markup or a shell reads it. Tell your own users less, by the variant.
/// Its `Debug` is the variant's name and that line. The [`report`](Error::report) of each variant that comes from
/// asking nodes has the answer of every node, with its address.
///
/// Only `Invalid` names addresses, if they are what is wrong and cannot have a password: it is meant for the person who sets the program up.
#[non_exhaustive]
#[derive(Clone)]
pub enum Error {
    /// Somebody else held the lock until the wait ran out; [`Report::holder`] says who. For a semaphore: all slots were
    /// taken. The nodes are well. Try again after [`retry_after`](Self::retry_after), or give up.
    Held(Report),
    /// Too few nodes answered to decide, or Consul did not answer. Nothing is held: partial grants are being taken
    /// back. Look at [`report`](Self::report), and try again after [`retry_after`](Self::retry_after).
    NoQuorum(Report),
    /// A majority granted the lock, but so late that no validity was left. For a rate limiter: units came later than
    /// its grace. Raise the ttl (or the grace), or find out why the nodes are slow.
    TooSlow(Report),
    /// The lease was over before the operation was done. Stop writing. Check what was written, unless the store checks
    /// tokens.
    Lost(Lost),
    /// Too few nodes may vote, because some restarted or are new. It ends by itself.
    /// [`Quorum::bootstrap`](crate::Quorum::bootstrap) admits servers that have never held a lock without this wait.
    Quarantined(Report),
    /// The nodes know another limit for this semaphore: programs that share it were started with different ones.
    /// Give all of them the same limit, or change it by [`Semaphore::resize`](crate::Semaphore::resize).
    LimitConflict(LimitConflict),
    /// A name or a setting is not valid; the text says what is allowed.
    Invalid(String),
    /// The operating system refused something that the library needs, such as random bits; the text says what. No node
    /// was asked. Look at the machine, or at its sandbox.
    System(String),
    /// The quorum was shut down. Stop.
    Closed,
    /// The tokio runtime that made this quorum has ended, or there was none, so nothing works in the background. Every
    /// call that may answer `Closed` may answer this. It is a mistake of the program: make the quorum in `main`, whose
    /// runtime lives as long as the program, and in tests one in each.
    RuntimeGone,
}

impl Error {
    /// The answer of every node, if nodes were asked.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Held(r) | Self::NoQuorum(r) | Self::TooSlow(r) | Self::Quarantined(r) => Some(r),
            Self::LimitConflict(conflict) => Some(&conflict.report),
            Self::Lost(_)
            | Self::Invalid(_)
            | Self::System(_)
            | Self::Closed
            | Self::RuntimeGone => None,
        }
    }

    /// Returns true if the same call may succeed later although nobody changes the program or its machine.
    pub fn is_retryable(&self) -> bool {
        self.report().is_some() && !matches!(self, Self::LimitConflict(_))
    }

    /// How long to wait before the next try, so that a plain loop neither spins nor sleeps through the end of an
    /// outage.
    ///
    /// - `NoQuorum`, `TooSlow`: always there, 50 ms to about 5 s. By then enough of the missing nodes will have been
    ///   dialled or asked again. If that time is not known, it is the node timeout.
    /// - `Quarantined`: always there, at least 50 ms. By then enough nodes may vote.
    /// - `Held`: until the holder's time is over, unless it renews. `None` if that time has no end.
    /// - All others: `None`, because trying again does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        self.report().and_then(Report::retry_after)
    }

    /// The same error about the rate limiter that users know by this name.
    pub(crate) fn of_limiter(self, name: &str) -> Self {
        match self {
            Self::Held(r) => Self::Held(r.of_limiter(name)),
            Self::NoQuorum(r) => Self::NoQuorum(r.of_limiter(name)),
            Self::TooSlow(r) => Self::TooSlow(r.of_limiter(name)),
            Self::Quarantined(r) => Self::Quarantined(r.of_limiter(name)),
            other => other,
        }
    }

    /// Says why a rate limiter has no answer, in words that a service can show.
    fn no_units(&self, f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
        write!(f, "{:?}: ", report.subject())?;
        f.write_str(match self {
            Self::Quarantined(_) => "the rate limiter is starting up",
            Self::TooSlow(_) => "the nodes that have units left answer too slowly",
            _ if answered(report) == 0 => "the rate limiter is unavailable",
            _ => "the nodes that answer cannot give this many units",
        })?;
        if let Some(left) = report.retry_after() {
            write!(f, "; try again in {}", seconds(left))?;
        }
        if matches!(self, Self::Quarantined(_)) {
            f.write_str(if_new(report))?;
        }
        write!(f, "{}", Missing(report))
    }

    /// The name of the variant.
    fn kind(&self) -> &'static str {
        match self {
            Self::Held(_) => "Held",
            Self::NoQuorum(_) => "NoQuorum",
            Self::TooSlow(_) => "TooSlow",
            Self::Lost(_) => "Lost",
            Self::Quarantined(_) => "Quarantined",
            Self::LimitConflict(_) => "LimitConflict",
            Self::Invalid(_) => "Invalid",
            Self::System(_) => "System",
            Self::Closed => "Closed",
            Self::RuntimeGone => "RuntimeGone",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoQuorum(r) | Self::TooSlow(r) | Self::Quarantined(r) if r.is_of_limiter() => {
                self.no_units(f, r)
            }
            Self::Held(r) => held(f, r),
            Self::NoQuorum(r) => no_quorum(f, r),
            Self::TooSlow(r) => write!(
                f,
                "{:?} was granted, but its validity had already run out: raise the ttl, or find out why the nodes \
                 are slow{}",
                r.subject(),
                Missing(r)
            ),
            Self::Lost(lost) => lost.fmt(f),
            Self::Quarantined(r) => {
                write!(f, "{:?}: too few nodes may vote yet", r.subject())?;
                if let Some(left) = r.retry_after() {
                    write!(f, ", enough will in {}", seconds(left))?;
                }
                f.write_str("; the quarantine ends by itself")?;
                f.write_str(if_new(r))?;
                write!(f, "{}", Missing(r))
            }
            Self::LimitConflict(conflict) => conflict.fmt(f),
            Self::Invalid(why) | Self::System(why) => f.write_str(why),
            Self::Closed => f.write_str("the quorum was shut down"),
            Self::RuntimeGone => f.write_str(
                "the quorum's tokio runtime has ended, or there was none: make the quorum in main, whose runtime lives as long as the program, \
                 and in tests one in each",
            ),
        }
    }
}

/// A hint at bootstrap if these servers may be new.
fn if_new(report: &Report) -> &'static str {
    match report.may_be_new() {
        false => "",
        true => {
            "; if these servers have never held a lock, `quorate bootstrap --new` (Quorum::bootstrap) admits them \
             within about 7 s; for servers of tests set QUORATE_THROWAWAY=1"
        }
    }
}

fn held(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    if let Some(slots) = report.slots() {
        write!(f, "{:?}: all {slots} slots are taken", report.subject())?;
        if let Some(holders) = report.holder().filter(|_| report.is_of_consul()) {
            write!(f, ", by {holders}")?;
        }
        return match report.retry_after() {
            Some(left) => write!(f, " (one for another {} unless renewed)", seconds(left)),
            None => Ok(()),
        };
    }
    if report.is_of_consul() && report.holder().is_none() {
        return write!(
            f,
            "{:?} is free, but other waiters are ahead or a lock-delay is running",
            report.subject()
        );
    }
    let holder = report.holder().unwrap_or("another");
    write!(f, "{:?}", report.subject())?;
    if let Some(name) = report.held_name() {
        write!(f, ": {name:?}")?;
    }
    write!(f, " is held by {holder}")?;
    match report.retry_after() {
        Some(left) => write!(f, " (for another {} unless renewed)", seconds(left)),
        None => Ok(()),
    }
}

fn no_quorum(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    if report.is_of_consul() {
        return write!(
            f,
            "{:?}: Consul could not be used{}",
            report.subject(),
            Alone(report)
        );
    }
    let (answered, total, needed) = (answered(report), report.nodes().len(), report.needed());
    write!(f, "{:?}: ", report.subject())?;
    if answered >= needed {
        // A bootstrap: all nodes are there, and it was not done in time.
        write!(
            f,
            "{answered} of {total} nodes answered, but it was not done in time"
        )?;
    } else if needed > total / 2 + 1 {
        write!(
            f,
            "{answered} of {total} nodes are available and all are needed"
        )?;
    } else {
        let are = if needed == 1 { "is" } else { "are" };
        write!(
            f,
            "no majority: {answered} of {total} nodes are available and {needed} {are} needed"
        )?;
    }
    write!(f, "{}", Missing(report))
}

/// The variant and its text, as in `NoQuorum("invoice:42": no majority: …)`. It is short because a `main` that returns
/// the error prints it.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({self})", self.kind())
    }
}

impl std::error::Error for Error {}

/// The two limits of a semaphore that differ.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct LimitConflict {
    /// The limit that was asked for.
    pub asked: u32,
    /// The limit that the nodes know.
    pub found: u32,
    /// The answer of every node.
    pub report: Report,
}

impl fmt::Display for LimitConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            asked,
            found,
            report,
        } = self;
        write!(
            f,
            "{:?} has a limit of {found}, and {asked} was asked for: start all programs with the same limit, or change \
             it by Semaphore::resize",
            report.subject()
        )
    }
}

/// The loss of a lease, and its reason.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// The reason of the loss.
    pub reason: LossReason,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lease is lost: {}", self.reason)
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lost({self})")
    }
}

impl std::error::Error for Lost {}

impl From<Lost> for Error {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

/// The reason why a lease ended before it was released.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossReason {
    /// Its validity ran out: no more renewals were allowed or wanted, or this process slept through it.
    Expired,
    /// A majority of nodes, or Consul, said that the holder does not have the lock any more. An operator freed it, or
    /// its keys vanished.
    Evicted,
    /// The lease was held for `max_hold`.
    MaxHold,
    /// No call of `beat()` came in time.
    NoHeartbeat,
    /// The lease could not be renewed in time on a majority, or in Consul.
    NodesLost,
    /// The holder released, dropped or abandoned the lease. Only its watches get this reason.
    Released,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its validity ran out",
            Self::Evicted => "the servers say that it no longer belongs to this holder",
            Self::MaxHold => "it was held for max_hold",
            Self::NoHeartbeat => "no heartbeat came in time",
            Self::NodesLost => "it could not be renewed on enough servers in time",
            Self::Released => "its holder gave it up",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeReport, Silence, Vote};

    fn report(needed: usize, votes: &[Vote], retry_after: Option<u64>) -> Report {
        let nodes = votes.iter().zip(1..).map(|(vote, n)| NodeReport {
            node: format!("10.0.0.{n}:6379").into(),
            vote: vote.clone(),
            holder: matches!(vote, Vote::Held(_)).then(|| "web-1:77".into()),
            name: None,
        });
        let retry_after = retry_after.map(Duration::from_millis);
        Report::new("invoice:42", needed, nodes.collect(), retry_after)
    }

    /// Checks the text, and that `Debug` adds only the variant's name.
    #[track_caller]
    fn says(error: &Error, kind: &str, text: &str) {
        assert_eq!(error.to_string(), text);
        for debug in [format!("{error:?}"), format!("{error:#?}")] {
            assert_eq!(debug, format!("{kind}({text})"));
        }
    }

    fn silent(silence: Silence) -> Vote {
        Vote::None(silence)
    }

    fn unreachable() -> Vote {
        silent(Silence::Unreachable("no route".into()))
    }

    #[test]
    fn held_names_the_holder_and_the_remaining_time() {
        let held = Vote::Held(Some(Duration::from_millis(3_200)));
        let error = Error::Held(report(2, &[held.clone(), held, unreachable()], Some(3_200)));
        let text = "\"invoice:42\" is held by web-1:77 (for another 3.2 s unless renewed)";
        says(&error, "Held", text);
        assert_eq!(
            error.report().map(ToString::to_string).as_deref(),
            Some(
                "10.0.0.1:6379: held by web-1:77 for 3.2 s; 10.0.0.2:6379: held by web-1:77 for 3.2 s; \
                 10.0.0.3:6379: unreachable: no route"
            )
        );
        // For several names the report names the one that most of the nodes with this holder name.
        let held = Vote::Held(Some(Duration::from_millis(3_200)));
        let nodes =
            [("db-2:9", "c"), ("web-1:77", "b"), ("web-1:77", "b")].map(|(holder, name)| {
                NodeReport {
                    node: "10.0.0.1:6379".into(),
                    vote: held.clone(),
                    holder: Some(holder.into()),
                    name: Some(name.into()),
                }
            });
        let of_several = Report::new(
            "a, b, c",
            2,
            nodes.into(),
            Some(Duration::from_millis(3_200)),
        );
        let node = of_several.nodes()[1].to_string();
        assert_eq!(node, "10.0.0.1:6379: \"b\" held by web-1:77 for 3.2 s");
        let text = "\"a, b, c\": \"b\" is held by web-1:77 (for another 3.2 s unless renewed)";
        says(&Error::Held(of_several), "Held", text);
        let of_slots = Error::Held(report(2, &[Vote::Held(None)], Some(3_200)).of_slots(3));
        let text = "\"invoice:42\": all 3 slots are taken (one for another 3.2 s unless renewed)";
        says(&of_slots, "Held", text);
        let error = Error::Held(report(1, &[Vote::NotOurs], None));
        says(&error, "Held", "\"invoice:42\" is held by another");
    }

    #[test]
    fn no_quorum_counts_the_available_nodes_and_gives_reasons() {
        let votes = [
            Vote::NotWaitedFor,
            unreachable(),
            unreachable(),
            silent(Silence::Stalled),
            silent(Silence::Unfit("its ACL withholds HMGET".into())),
        ];
        says(
            &Error::NoQuorum(report(3, &votes, None)),
            "NoQuorum",
            "\"invoice:42\": no majority: 1 of 5 nodes are available and 3 are needed (1 stalled; \
             2 unreachable: no route; 1 refused: its ACL withholds HMGET)",
        );
        says(
            &Error::NoQuorum(report(1, &[silent(Silence::TimedOut)], None)),
            "NoQuorum",
            "\"invoice:42\": no majority: 0 of 1 nodes are available and 1 is needed (1 without an answer in time)",
        );
        says(
            &Error::NoQuorum(report(
                3,
                &[Vote::Confirmed, Vote::Confirmed, unreachable()],
                None,
            )),
            "NoQuorum",
            "\"invoice:42\": 2 of 3 nodes are available and all are needed (1 unreachable: no route)",
        );
        says(
            &Error::NoQuorum(report(2, &[Vote::Confirmed, Vote::Confirmed], None)),
            "NoQuorum",
            "\"invoice:42\": 2 of 2 nodes answered, but it was not done in time",
        );
    }

    /// A service can show these texts.
    #[test]
    fn a_rate_limiter_says_when_to_try_again() {
        let again = Some(34_000);
        let of = |votes: &[Vote]| report(1, votes, again).of_limiter("api");
        let young = || silent(Silence::Quarantined(Duration::from_secs(34)));
        says(
            &Error::Quarantined(of(&[young(), Vote::Confirmed])),
            "Quarantined",
            "\"api\": the rate limiter is starting up; try again in 34.0 s (1 quarantined)",
        );
        let far = silent(Silence::OutOfReach(Duration::from_millis(150)));
        says(
            &Error::TooSlow(of(&[far, Vote::Confirmed])),
            "TooSlow",
            "\"api\": the nodes that have units left answer too slowly; try again in 34.0 s (1 too far away for this limit)",
        );
        says(
            &Error::NoQuorum(of(&[silent(Silence::Stalled)])),
            "NoQuorum",
            "\"api\": the rate limiter is unavailable; try again in 34.0 s (1 stalled)",
        );
        says(
            &Error::NoQuorum(of(&[silent(Silence::Stalled), Vote::Confirmed])),
            "NoQuorum",
            "\"api\": the nodes that answer cannot give this many units; try again in 34.0 s (1 stalled)",
        );
    }

    #[test]
    fn the_other_errors_say_what_to_do() {
        let granted = Vote::Granted(crate::FencingToken::from_counter(7));
        says(
            &Error::TooSlow(report(
                2,
                &[granted.clone(), granted, silent(Silence::Stalled)],
                None,
            )),
            "TooSlow",
            "\"invoice:42\" was granted, but its validity had already run out: raise the ttl, or find out why the nodes are slow (1 stalled)",
        );
        let young = silent(Silence::Quarantined(Duration::from_secs(35)));
        says(
            &Error::Quarantined(report(
                2,
                &[young.clone(), young.clone(), unreachable()],
                Some(35_300),
            )),
            "Quarantined",
            "\"invoice:42\": too few nodes may vote yet, enough will in 35.3 s; the quarantine ends by itself; if \
             these servers have never held a lock, `quorate bootstrap --new` (Quorum::bootstrap) admits them within \
             about 7 s; for servers of tests set QUORATE_THROWAWAY=1 (2 quarantined; 1 unreachable: no route)",
        );
        says(
            &Error::Quarantined(report(2, &[Vote::NotWaitedFor, young], Some(35_300))),
            "Quarantined",
            "\"invoice:42\": too few nodes may vote yet, enough will in 35.3 s; the quarantine ends by itself (1 quarantined)",
        );
        let lost = Lost {
            reason: LossReason::MaxHold,
        };
        says(
            &lost.into(),
            "Lost",
            "the lease is lost: it was held for max_hold",
        );
        assert_eq!(
            format!("{lost:?}"),
            "Lost(the lease is lost: it was held for max_hold)"
        );
        says(
            &Error::Invalid("the name is empty".into()),
            "Invalid",
            "the name is empty",
        );
        says(
            &Error::System("no random bits".into()),
            "System",
            "no random bits",
        );
        says(&Error::Closed, "Closed", "the quorum was shut down");
    }
}

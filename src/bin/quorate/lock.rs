//! `quorate lock` and `quorate semaphore`: takes the lock or a slot, runs the command, frees it.

mod hold;
mod words;

use std::{
    future,
    io::{self, IsTerminal},
    time::Duration,
};

use quorate::{Error, Lease, Quorum, Renewal};
use tokio::{select, time};

pub(crate) use self::words::Under;

use self::hold::hold;
use crate::{
    args::{Args, Lock},
    child::Child,
    failure::{self, Failure},
    output,
    signals::Signals,
    survey,
    wanted::Wanted,
};

/// A longer wait than this is worth a line for those who watch.
const WORTH_A_LINE: Duration = Duration::from_millis(500);

/// `limit`: how many may run at once, where it is a semaphore.
pub(crate) async fn run(args: &Args, lock: &Lock, limit: Option<u32>) -> Result<u8, Failure> {
    // All settings are checked before any server is waited for. Reading them may take long (a FIFO), so
    // signals still end this process by themselves.
    let quorum = args.fleet.builder()?.connect_lazy()?;
    let renewal = lock.max_hold.map(|most| Renewal::auto().max_hold(most));
    let wanted = Wanted::new(
        &quorum,
        (&lock.name, limit),
        ttl(args, lock),
        lock.wait,
        renewal.unwrap_or_default(),
    );
    wanted.validate()?;
    check_max_hold(args, lock)?;
    let mut signals = Signals::of_job()?;
    output::write_aside();
    let result = locked(args, lock, &quorum, &wanted, &mut signals).await;
    // What nodes granted is taken back, and what is held is released. A second signal ends this at once. If no
    // majority answered, it is not waited for again: what is left behind ends with its ttl.
    let last_words = args.fleet.node_timeout() / 4;
    select! {
        biased;
        _ = signals.end() => {}
        _ = quorum.shutdown() => {}
        () = time::sleep(last_words), if is_unavailable(&result) => {}
    }
    result
}

/// The command is told to end a twentieth of the ttl earlier, so `--max-hold` has to be longer than that.
fn check_max_hold(args: &Args, lock: &Lock) -> Result<(), Failure> {
    let ttl = ttl(args, lock);
    let shortest = hold::notice(ttl) * 2;
    match lock.max_hold {
        Some(longest) if longest < shortest => Err(Failure::usage(format!(
            "--max-hold {longest:?} is too short beside a --ttl of {ttl:?}: the command is told to end a \
             twentieth of the ttl earlier. Give it at least {shortest:?}, or a shorter --ttl"
        ))),
        _ => Ok(()),
    }
}

fn ttl(args: &Args, lock: &Lock) -> Duration {
    let default = args.fleet.max_ttl().min(Duration::from_secs(10));
    lock.ttl.unwrap_or(default)
}

fn is_unavailable(result: &Result<u8, Failure>) -> bool {
    let code = result.as_ref().err().map(Failure::code);
    code == Some(failure::UNAVAILABLE)
}

async fn locked(
    args: &Args,
    lock: &Lock,
    quorum: &Quorum,
    wanted: &Wanted,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let lease = loop {
        let lease = select! {
            biased;
            signal = signals.end() => {
                let text = format!("ended while waiting for {}; nothing was run", wanted.noun());
                return Err(Failure::interrupted(signal as i32, text));
            }
            lease = acquire(args, lock, quorum, wanted) => lease?,
        };
        // If not, this process was stopped meanwhile.
        if lease.is_valid() {
            break lease;
        }
    };
    let child = match Child::start(args, lock, &lease) {
        Ok(child) => child,
        Err(failure) => {
            let _ = lease.release().await;
            return Err(failure);
        }
    };
    hold(args, lock, lease, ttl(args, lock), child, signals).await
}

async fn acquire(
    args: &Args,
    lock: &Lock,
    quorum: &Quorum,
    wanted: &Wanted,
) -> Result<Lease, Failure> {
    quorum.ready().await?;
    if lock.no_wait {
        return match wanted.try_take().await {
            Ok(Some(lease)) => Ok(lease),
            Ok(None) => Err(held(lock, quorum, wanted).await),
            Err(error) => Err(refused(error, quorum)),
        };
    }
    let taking = wanted.take();
    tokio::pin!(taking);
    let result = select! {
        biased;
        result = &mut taking => result,
        () = say_who_is_waited_for(args, lock, quorum, wanted) => taking.await,
    };
    match result {
        Err(Error::Held(_)) => Err(held(lock, quorum, wanted).await),
        other => other.map_err(|error| refused(error, quorum)),
    }
}

/// The hint about new servers is for servers that look new: the error alone does not know.
fn refused(error: Error, quorum: &Quorum) -> Failure {
    match (&error, error.retry_after()) {
        (Error::Quarantined(_), Some(left)) => {
            let text = quarantined(left, quorum);
            Failure::from(error).saying(text)
        }
        _ => error.into(),
    }
}

fn quarantined(left: Duration, quorum: &Quorum) -> String {
    let then = survey::ends_by_itself(left, survey::may_be_new(&quorum.nodes()));
    format!("too few nodes may vote yet; {then}")
}

/// One line when it takes long: for those who watch, not for cron's mail.
async fn say_who_is_waited_for(args: &Args, lock: &Lock, quorum: &Quorum, wanted: &Wanted) {
    if args.json || !(args.verbose > 0 || io::stderr().is_terminal()) {
        return future::pending().await;
    }
    time::sleep(WORTH_A_LINE).await;
    let seen = quorum.inspect(&lock.name).await.ok();
    let health = quorum.health();
    let what = match seen.as_ref().and_then(|seen| wanted.taken_by(seen)) {
        Some(taken) => taken,
        None if health.is_ready() => "which changes hands".to_owned(),
        None => match health.votes_in {
            Some(left) => quarantined(left, quorum),
            None => format!(
                "{} nodes vote and {} are needed",
                health.voting, health.needed
            ),
        },
    };
    // This command is one of them.
    let line = match seen.as_ref().map_or(0, |seen| wanted.waiting(seen)) {
        0 | 1 => String::new(),
        more => format!("; {more} wait in line"),
    };
    output::complain(&format!("waiting for {:?}, {what}{line}", lock.name));
}

/// Others have it. The next question is who, so the nodes are asked once more.
async fn held(lock: &Lock, quorum: &Quorum, wanted: &Wanted) -> Failure {
    let seen = quorum.inspect(&lock.name).await.ok();
    wanted.held(lock, seen.as_ref())
}

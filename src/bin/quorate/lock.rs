//! `quorate lock`: takes the lock, runs the command, frees the lock.

mod hold;

use std::{
    future,
    io::{self, IsTerminal},
    time::Duration,
};

use quorate::{Error, Inspection, Lease, Mutex, Quorum, Renewal};
use tokio::{select, time};

use self::hold::hold;
use crate::{
    args::{Args, Lock},
    child::Child,
    failure::{self, Failure},
    output,
    signals::Signals,
    survey,
};

/// A longer wait than this is worth a line for those who watch.
const WORTH_A_LINE: Duration = Duration::from_millis(500);

pub(crate) async fn run(args: &Args, lock: &Lock) -> Result<u8, Failure> {
    // All settings are checked before any server is waited for. Reading them may take long (a FIFO), so
    // signals still end this process by themselves.
    let quorum = args.fleet.builder()?.connect_lazy()?;
    let mutex = mutex(args, lock, &quorum);
    mutex.validate()?;
    check_max_hold(args, lock)?;
    let mut signals = Signals::of_job()?;
    output::write_aside();
    let result = locked(args, lock, &quorum, &mutex, &mut signals).await;
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

fn mutex(args: &Args, lock: &Lock, quorum: &Quorum) -> Mutex {
    let mut mutex = quorum.mutex(&lock.name).ttl(ttl(args, lock));
    if let Some(wait) = lock.wait {
        mutex = mutex.wait_timeout(wait);
    }
    if let Some(longest) = lock.max_hold {
        mutex = mutex.renewal(Renewal::auto().max_hold(longest));
    }
    mutex
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
    mutex: &Mutex,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let lease = loop {
        let lease = select! {
            biased;
            signal = signals.end() => return Err(Failure::interrupted(signal as i32)),
            lease = acquire(args, lock, quorum, mutex) => lease?,
        };
        // If not, this process was stopped meanwhile.
        if lease.is_valid() {
            break lease;
        }
    };
    let child = match Child::start(args, lock, lease.token()) {
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
    mutex: &Mutex,
) -> Result<Lease, Failure> {
    quorum.ready().await?;
    if lock.no_wait {
        return match mutex.try_lock().await {
            Ok(Some(lease)) => Ok(lease),
            Ok(None) => Err(held(lock, quorum).await),
            Err(error) => Err(refused(error, quorum)),
        };
    }
    let locking = mutex.lock();
    tokio::pin!(locking);
    let result = select! {
        biased;
        result = &mut locking => result,
        () = say_who_is_waited_for(args, lock, quorum) => locking.await,
    };
    match result {
        Err(Error::Held(_)) => Err(held(lock, quorum).await),
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
async fn say_who_is_waited_for(args: &Args, lock: &Lock, quorum: &Quorum) {
    if args.json || !(args.verbose > 0 || io::stderr().is_terminal()) {
        return future::pending().await;
    }
    time::sleep(WORTH_A_LINE).await;
    let seen = quorum.inspect(&lock.name).await.ok();
    let health = quorum.health();
    let what = match seen.as_ref().and_then(Inspection::holder) {
        Some(holder) => format!("held by {}", holder.label),
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
    let line = match seen.as_ref().map_or(0, Inspection::waiting) {
        0 | 1 => String::new(),
        more => format!("; {more} wait in line"),
    };
    output::complain(&format!("waiting for {:?}, {what}{line}", lock.name));
}

/// Somebody else has it. The next question is who, so the nodes are asked once more.
async fn held(lock: &Lock, quorum: &Quorum) -> Failure {
    let seen = quorum.inspect(&lock.name).await.ok();
    let holder = seen.as_ref().and_then(Inspection::holder);
    let advice = match lock.wait {
        Some(_) => "a longer --wait waits for it",
        None => "without --no-wait this waits for it",
    };
    Failure::held(&lock.name, holder, advice)
}

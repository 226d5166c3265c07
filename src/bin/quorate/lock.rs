//! `quorate lock`: takes the lock, runs the command, frees the lock.

use std::time::Duration;

use nix::sys::signal::Signal;
use quorate::{Error, Lease, LossReason, Mutex, Quorum};
use tokio::{select, time};

use crate::{
    args::{Args, Lock},
    child::{Child, News},
    failure::{self, Failure},
    output,
    signals::Signals,
};

/// How often to look whether a killed process is gone.
const LOOK: Duration = Duration::from_millis(2);
/// How long a killed process may take to be gone: the kernel may be writing its memory away.
const GONE: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: &Args, lock: &Lock) -> Result<u8, Failure> {
    let mut signals = Signals::new().map_err(|error| {
        Failure::new(
            failure::SOFTWARE,
            "internal",
            format!("cannot listen for signals: {error}"),
        )
    })?;
    let builder = args.fleet.builder()?;
    let quorum = select! {
        biased;
        signal = signals.end() => return Err(Failure::interrupted(signal as i32)),
        quorum = builder.connect() => quorum?,
    };
    let result = locked(args, lock, &quorum, &mut signals).await;
    // What nodes granted is taken back, what is held is let go. Whoever asks twice waits for
    // nothing: what is left behind ends with its ttl.
    select! {
        biased;
        _ = signals.end() => {}
        _ = quorum.shutdown() => {}
    }
    result
}

async fn locked(
    args: &Args,
    lock: &Lock,
    quorum: &Quorum,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let ttl = lock
        .ttl
        .unwrap_or(args.fleet.max_ttl().min(Duration::from_secs(10)));
    let mut mutex = quorum.mutex(&lock.name).ttl(ttl);
    if let Some(wait) = lock.wait {
        mutex = mutex.wait_timeout(wait);
    }
    let lease = select! {
        biased;
        signal = signals.end() => return Err(Failure::interrupted(signal as i32)),
        lease = acquire(lock, quorum, &mutex) => lease?,
    };
    let child = match Child::start(&lock.command, &lock.name, lease.token()) {
        Ok(child) => child,
        Err(failure) => {
            let _ = lease.release().await;
            return Err(failure);
        }
    };
    hold(args, lease, ttl, child, signals).await
}

async fn acquire(lock: &Lock, quorum: &Quorum, mutex: &Mutex) -> Result<Lease, Failure> {
    if lock.no_wait {
        return match mutex.try_lock().await? {
            Some(lease) => Ok(lease),
            None => Err(held(lock, quorum).await),
        };
    }
    match mutex.lock().await {
        Err(Error::Held(_)) => Err(held(lock, quorum).await),
        other => Ok(other?),
    }
}

/// Somebody else has it: who? Worth one more question to the nodes, as that is the next question
/// anyway.
async fn held(lock: &Lock, quorum: &Quorum) -> Failure {
    let seen = quorum.inspect(&lock.name).await.ok();
    let holder = seen.as_ref().and_then(|seen| seen.holder());
    let by = holder.map_or_else(|| "somebody else".to_owned(), |holder| holder.label.clone());
    let left = holder
        .and_then(|holder| holder.remaining)
        .map(output::seconds);
    let left = left
        .map(|left| format!(", for {left} more unless it is renewed"))
        .unwrap_or_default();
    let advice = match lock.wait {
        Some(_) => "a longer --wait waits for it",
        None => "without --no-wait this waits for it",
    };
    Failure::new(
        failure::HELD,
        "held",
        format!("{:?} is held by {by}{left}; {advice}", lock.name),
    )
}

/// Until the command ends, or has to.
async fn hold(
    args: &Args,
    lease: Lease,
    ttl: Duration,
    mut child: Child,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    // When the validity ends, in the lease's own time, as far as was seen.
    let mut end = lease.held_for();
    loop {
        let validity = lease.validity();
        if !validity.is_zero() {
            end = lease.held_for().saturating_add(validity);
        }
        select! {
            biased;
            reason = lease.lost() => return Err(lost(lease, ttl, end, reason, child).await),
            heard = signals.next_or_child() => match heard {
                Some(signal) => child.signal(signal),
                None => while let Some(news) = child.news() {
                    match news {
                        News::Ended(code) => return release(args, lease, ttl, code).await,
                        News::Stopped(signal) => {
                            child.stopped_by(signal);
                            // Else it is told to end, above.
                            if lease.is_valid() {
                                child.go_on();
                            }
                        }
                    }
                },
            },
            () = time::sleep(ttl / 6) => {}
        }
    }
}

/// The lease is over: the command has to be, before its validity ends.
async fn lost(
    lease: Lease,
    ttl: Duration,
    end: Duration,
    reason: LossReason,
    mut child: Child,
) -> Failure {
    child.adopt_orphans();
    // A loss is announced this long before the end. The last fifth is for the kill.
    let margin = (ttl / 20).max(Duration::from_millis(20));
    let announced = lease.held_for();
    // This process itself may have been stopped, and hear of it late.
    let kill_at = end
        .saturating_sub(margin / 5)
        .min(announced.saturating_add(margin * 4 / 5));
    if kill_at > announced {
        child.signal(Signal::SIGTERM);
        // One that is stopped would not hear the first.
        child.signal(Signal::SIGCONT);
        until_gone(&mut child, &lease, kill_at).await;
    }
    let gone_in_time = child.is_gone();
    child.signal(Signal::SIGKILL);
    let over = lease.held_for().saturating_add(GONE);
    until_gone(&mut child, &lease, over).await;
    let name = lease.name().to_owned();
    match child.is_gone() {
        true => drop(lease),
        false => lease.abandon(),
    }
    let then = match gone_in_time {
        true => "the command was told to end, and did in time",
        false => "the command was told to end, and then killed",
    };
    Failure::lost(&name, reason, then)
}

async fn until_gone(child: &mut Child, lease: &Lease, until: Duration) {
    loop {
        while child.news().is_some() {}
        let left = until.saturating_sub(lease.held_for());
        if child.is_gone() || left.is_zero() {
            return;
        }
        time::sleep(LOOK.min(left)).await;
    }
}

/// The command ended by itself.
async fn release(args: &Args, lease: Lease, ttl: Duration, code: u8) -> Result<u8, Failure> {
    let name = lease.name().to_owned();
    match lease.release().await {
        Ok(()) => Ok(code),
        Err(Error::Lost(lost)) => Err(Failure::lost(
            &name,
            lost.reason,
            &format!("the command has ended, with status {code}"),
        )),
        Err(error) => {
            let text = format!(
                "the command is done, but too few nodes confirmed that {name:?} is free; it is at the latest in {}: {error}",
                output::seconds(ttl)
            );
            match args.json {
                true => output::to_stderr(
                    &serde_json::json!({"warning": "not_released", "message": text}).to_string(),
                ),
                false => output::complain(&text),
            }
            Ok(code)
        }
    }
}

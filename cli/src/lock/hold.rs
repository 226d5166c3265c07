//! The time while the lock is held. The command runs. It is stopped and continued with the job that it is part of. It
//! ends before anybody else can get the lock.

use std::time::Duration;

use nix::{errno::Errno, sys::signal::Signal};
use quorate::{Error, Lease, LossReason};
use tokio::{select, time};

use super::words::Under;
use crate::{
    args::{Args, Run},
    child::{Child, LOOK, Rest},
    failure::Failure,
    output,
    signals::{Signals, is_stop},
};

/// How long a killed process may take to vanish: the kernel may be writing its memory to disk.
const GONE: Duration = Duration::from_secs(1);
/// Why a command cannot be ended.
const UNTOUCHABLE: &str = "it may not be signalled (does it run as another user, as under sudo?)";
/// How often to check whether the processes that a command left behind have ended.
const LOOK_BEHIND: Duration = Duration::from_millis(100);

/// A lease under which a command runs.
pub(super) struct Held<'a> {
    pub(super) args: &'a Args,
    pub(super) lease: Lease,
    pub(super) under: Under,
    pub(super) ttl: Duration,
}

impl Held<'_> {
    /// Holds the lock until the command has ended, or must end.
    pub(super) async fn hold(
        self,
        run: &Run,
        mut child: Child,
        signals: &mut Signals,
    ) -> Result<u8, Failure> {
        let Self {
            args,
            ref lease,
            ttl,
            ..
        } = self;
        if run.whole_group {
            child.adopt_orphans();
        }
        let mut told = false;
        // When the validity ends, on the lease's own clock, as of the last look.
        let mut end = lease.held_for();
        loop {
            let validity = lease.validity();
            let valid = !validity.is_zero();
            child.look();
            if valid {
                end = lease.held_for().saturating_add(validity);
                // This process may have been stopped, but the lease was checked after that.
                child.go_on();
                if let Some(code) = child.done() {
                    let released = self.release(code).await;
                    if released.is_ok() && child.was_interrupted() {
                        signals.interrupt_our_group();
                        return Err(Failure::silent_interrupt());
                    }
                    return released;
                }
            }
            let step = async {
                if let Some(signal) = child.stopped_by() {
                    return child.follow(signal, signals).await;
                }
                let rest = match child.ended() {
                    Some(_) => LOOK_BEHIND.min(ttl / 6),
                    None => ttl / 6,
                };
                let heard = select! {
                    heard = signals.next_or_child() => heard,
                    () = time::sleep(rest) => None,
                };
                // A signal that arrives after a stop must not be passed on under an expired lease.
                let Some(signal) = heard.filter(|_| lease.is_valid()) else {
                    return;
                };
                if is_stop(signal) {
                    if !child.stop(signal, signals).await {
                        let text =
                            "the command cannot be stopped, so quorate is not stopped either";
                        warn(args, "not_stopped", text);
                    }
                } else if child.pass_on(signal) == Err(Errno::EPERM)
                    && !std::mem::replace(&mut told, true)
                {
                    let text = format!("{signal} was not passed on: {UNTOUCHABLE}");
                    warn(args, "not_passed_on", &text);
                }
            };
            select! {
                biased;
                reason = lease.lost() => {
                    return Err(self.lost(end, reason, child, signals).await);
                }
                () = step, if valid => {}
            }
        }
    }

    /// The lease is over, so the command must end before the validity does.
    async fn lost(
        self,
        end: Duration,
        reason: LossReason,
        mut child: Child,
        signals: &mut Signals,
    ) -> Failure {
        let Self {
            lease, under, ttl, ..
        } = self;
        child.look();
        let ended = child.ended();
        let nothing_left = ended.is_some() && child.rest() == Rest::Gone;
        child.adopt_orphans();
        // The last fifth of the notice is for the kill.
        let notice = notice(ttl);
        let announced = lease.held_for();
        // This process itself may have been stopped, and learn of the loss late.
        let kill_at = end
            .saturating_sub(notice / 5)
            .min(announced.saturating_add(notice * 4 / 5));
        if kill_at > announced {
            // Processes that may not be signalled are found below. A stopped process notices SIGTERM only after
            // SIGCONT.
            let _ = child.signal(Signal::SIGTERM);
            let _ = child.signal(Signal::SIGCONT);
            until_gone(&mut child, &lease, kill_at, signals).await;
        }
        let gone_in_time = child.rest() == Rest::Gone;
        let _ = child.signal(Signal::SIGKILL);
        let over = lease.held_for().saturating_add(GONE);
        until_gone(&mut child, &lease, over, signals).await;
        child.restore_terminal();
        let rest = child.rest();
        match rest {
            Rest::Gone => drop(lease),
            Rest::Alive | Rest::Untouchable => lease.abandon(),
        }
        let group = child.group();
        let who = match ended {
            None => "the command".to_owned(),
            Some(code) => {
                format!("the command had ended, with status {code}; the rest of its process group")
            }
        };
        let then = match (rest, ended) {
            (Rest::Gone, Some(code)) if nothing_left => {
                format!("the command had ended, with status {code}")
            }
            (Rest::Gone, _) if gone_in_time => format!("{who} was told to end, and ended in time"),
            (Rest::Gone, _) => format!("{who} was told to end, and then killed"),
            (Rest::Alive, _) => {
                format!("{who} was killed, but is not gone yet: process group {group}")
            }
            (Rest::Untouchable, _) => format!(
                "{who} could not be ended: {UNTOUCHABLE} and may still run, process group {group}"
            ),
        };
        under.lost(reason, &then)
    }

    /// Releases the lock after the command has ended by itself.
    async fn release(self, code: u8) -> Result<u8, Failure> {
        let Self {
            args,
            lease,
            under,
            ttl,
        } = self;
        match lease.release().await {
            Ok(()) => Ok(code),
            Err(Error::Lost(lost)) => Err(under.lost(
                lost.reason,
                &format!("the command has ended, with status {code}"),
            )),
            Err(error) => {
                let unconfirmed = Failure::from(error).saying(under.unconfirmed(ttl));
                unconfirmed.warn(args.json, "not_released");
                Ok(code)
            }
        }
    }
}

/// A loss is announced this long before the validity ends.
pub(super) fn notice(ttl: Duration) -> Duration {
    (ttl / 20).max(Duration::from_millis(20))
}

async fn until_gone(child: &mut Child, lease: &Lease, until: Duration, signals: &mut Signals) {
    loop {
        child.look();
        let left = until.saturating_sub(lease.held_for());
        if child.rest() == Rest::Gone || left.is_zero() {
            return;
        }
        select! {
            // The command has little time left, so it is not stopped now.
            signal = signals.next() => if !is_stop(signal) {
                let _ = child.pass_on(signal);
            },
            () = time::sleep(LOOK.min(left)) => {}
        }
        // Ctrl-Z reaches only the command, so the command alone is stopped and has to be continued.
        if child.stopped_by().is_some() {
            let _ = child.signal(Signal::SIGCONT);
        }
    }
}

fn warn(args: &Args, kind: &str, text: &str) {
    match args.json {
        true => {
            output::to_stderr(&serde_json::json!({"warning": kind, "message": text}).to_string())
        }
        false => output::complain(text),
    }
}

//! `quorate lock` and `quorate semaphore`: takes the lock or the slot, runs the command, and releases it.

mod backend;
mod hold;
mod words;

use std::{future, time::Duration};

use quorate::{Lease, Renewal};
use tokio::{select, time};

pub(crate) use self::words::Under;

use self::{backend::Backend, hold::Held};
use crate::{
    args::{Args, Asked, Run},
    child::Child,
    failure::Failure,
    output,
    signals::Signals,
    wanted::Wanted,
};

pub(crate) async fn run(args: &Args, run: &Run, asked: &Asked) -> Result<u8, Failure> {
    // All settings are checked before any server is waited for. Reading them may take long (a FIFO), so signals are not
    // caught yet and still end this process.
    let backend = Backend::open(args, run)?;
    let renewal = run.max_hold.map(|most| Renewal::auto().max_hold(most));
    let wanted = backend.wanted(run, asked, ttl(args, run), renewal.unwrap_or_default());
    wanted.validate()?;
    check_max_hold(args, run)?;
    let mut signals = Signals::of_job()?;
    output::write_aside();
    let job = Job {
        args,
        run,
        asked,
        backend: &backend,
        wanted: &wanted,
    };
    let result = job.run(&mut signals).await;
    // A second signal ends this process at once. If no majority answered, or Consul did not, the shutdown does not wait
    // for it again. Grants that are left behind end with their ttl.
    let last_words = args.fleet.node_timeout() / 4;
    select! {
        biased;
        _ = signals.end() => {}
        () = backend.end() => {}
        () = time::sleep(last_words), if is_unavailable(&result) => {}
    }
    result.map_err(|failure| failure.if_held(run.conflict_status, run.quiet))
}

/// The command is told to end a twentieth of the ttl earlier, so `--max-hold` has to be longer than that.
fn check_max_hold(args: &Args, run: &Run) -> Result<(), Failure> {
    let ttl = ttl(args, run);
    let shortest = hold::notice(ttl) * 2;
    match run.max_hold {
        Some(longest) if longest < shortest => Err(Failure::usage(format!(
            "--max-hold {longest:?} is too short for a --ttl of {ttl:?}, because the command gets SIGTERM a \
             twentieth of the ttl earlier: give at least {shortest:?}, or a shorter --ttl"
        ))),
        _ => Ok(()),
    }
}

fn ttl(args: &Args, run: &Run) -> Duration {
    let default = args.fleet.max_ttl().min(Duration::from_secs(10));
    run.ttl.unwrap_or(default)
}

fn is_unavailable(result: &Result<u8, Failure>) -> bool {
    result.as_ref().is_err_and(Failure::is_unavailable)
}

/// One run of the command under its lock or slot.
struct Job<'a> {
    args: &'a Args,
    run: &'a Run,
    asked: &'a Asked,
    backend: &'a Backend,
    wanted: &'a Wanted,
}

impl Job<'_> {
    async fn run(&self, signals: &mut Signals) -> Result<u8, Failure> {
        let Self {
            args, run, asked, ..
        } = *self;
        let lease = loop {
            let lease = select! {
                biased;
                signal = signals.end() => {
                    let text = format!("ended while waiting for {}; nothing was run", asked.noun());
                    return Err(Failure::interrupted(signal as i32, text));
                }
                lease = self.acquire() => lease?,
            };
            // The lease is not valid if this process was stopped meanwhile.
            if lease.is_valid() {
                break lease;
            }
        };
        let child = match Child::start(args, run, &lease) {
            Ok(child) => child,
            Err(failure) => {
                let _ = lease.release().await;
                return Err(failure);
            }
        };
        let under = Under::of(asked, &lease, run.consul.is_asked());
        let held = Held {
            args,
            lease,
            under,
            ttl: ttl(args, run),
        };
        held.hold(run, child, signals).await
    }

    async fn acquire(&self) -> Result<Lease, Failure> {
        self.backend.ready(self.args, self.run).await?;
        let taken = match self.run.no_wait {
            true => self.wanted.take_now().await,
            false => {
                let taking = self.wanted.take();
                tokio::pin!(taking);
                select! {
                    biased;
                    taken = &mut taking => taken,
                    () = self.say_what_is_waited_for() => taking.await,
                }
            }
        };
        match taken {
            Ok(lease) => Ok(lease),
            Err(error) => Err(self.backend.refused(self.run, self.asked, error).await),
        }
    }

    /// Prints one line when the wait takes long. The line is for people at a terminal, not for cron's mail.
    async fn say_what_is_waited_for(&self) {
        if self.run.quiet || !output::is_watched(self.args.json, self.args.verbose) {
            return future::pending().await;
        }
        time::sleep(output::WORTH_A_LINE).await;
        if let Some(what) = self.backend.waits_for(self.asked, self.wanted).await {
            output::complain(&format!("waiting for {what}"));
        }
    }
}

//! The `quorate` command: quorum locks for shell scripts, cron jobs and operators.
//!
//! | file | what it is |
//! | --- | --- |
//! | `args` `args/` | the command line and its help |
//! | `lock` | `quorate lock` and `quorate semaphore` |
//! | `limit` | `quorate limit`: takes units of a rate limit, then becomes the command |
//! | `inspect` `evict` `resize` `bootstrap` (and `raise-terms`) `nodes` `watch` `conformance` `demo` | one command each |
//! | `generate` | completions for shells, and man pages |
//! | `wanted` | a lock, a side of a read-write lock, or a slot of a semaphore; on the masters, or in Consul |
//! | `torture/` | load, its history, and the judge of that history |
//! | `child` | the locked command: its process group, its terminal, its end |
//! | `exec` | the step between fork and exec of the locked command |
//! | `terminal` | the terminal that controls this process |
//! | `job` | this process as part of a shell's job, which the terminal may stop |
//! | `signals` | the signals that this process catches |
//! | `failure` | the errors that end a command, with the exit status and the text of each |
//! | `survey` | waits for the nodes and describes them, for commands that only ask |
//! | `output` | text, tables, JSON and the log |

// Without Consul some arguments and helpers are not used.
#![cfg_attr(not(feature = "consul"), allow(dead_code, unused_variables))]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

#[cfg(not(unix))]
compile_error!("the `quorate` command needs Unix: processes, signals, terminals");

mod args;
mod bootstrap;
mod child;
#[cfg(feature = "conformance")]
mod conformance;
mod demo;
mod evict;
mod exec;
mod failure;
mod generate;
mod inspect;
mod job;
mod limit;
mod lock;
mod nodes;
mod output;
mod resize;
mod signals;
mod survey;
mod terminal;
mod torture;
mod wanted;
mod watch;

use std::{
    ffi::{OsStr, OsString},
    process::{self, ExitCode},
    time::Duration,
};

use args::{Args, Command};
use bootstrap::How;
use failure::Failure;

/// How long the last lines may take if nobody reads them.
const LAST_WORDS: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    // These three words are not for people, so clap does not know them. The first starts the locked command, the second
    // obeys a signal, and the third is a part of a load.
    let mut words = std::env::args_os().skip(1);
    let mut line: Vec<OsString> = std::env::args_os().collect();
    let mut worker = None;
    match words.next() {
        Some(first) if first == exec::EXEC => return ExitCode::from(exec::exec(words)),
        Some(first) if first == job::OBEY => {
            let signal = words.next();
            return ExitCode::from(job::obey(signal.as_deref().and_then(OsStr::to_str)));
        }
        Some(first) if first == torture::WORKER => {
            worker = words
                .next()
                .and_then(|number| number.to_str()?.parse().ok());
            line.drain(1..line.len().min(3));
        }
        _ => {}
    }
    let args = match args::parse(&line, worker) {
        Ok(args) => args,
        Err(code) => return ExitCode::from(code),
    };
    output::start_log(args.verbose);
    // There is one thread: the locked command dies with the thread that starts it, so that thread must live as long as
    // the process.
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            output::complain(&format!("cannot start: {error}"));
            return ExitCode::from(failure::SOFTWARE);
        }
    };
    let mut next = None;
    let result = runtime.block_on(run(&args, &mut next));
    // A lookup of a host name must not delay the end.
    runtime.shutdown_background();
    // Only now nothing is left that this process has started, such as a password command.
    let result = match next {
        Some(mut command) => {
            let ignores_pipe = signals::ignored_pipe_from_the_start();
            Err(exec::become_command(&mut command, ignores_pipe))
        }
        None => result,
    };
    ExitCode::from(end(&args, result))
}

/// Prints what is still to be printed, and returns the exit status.
fn end(args: &Args, result: Result<u8, Failure>) -> u8 {
    let unsaid = output::unsaid().map(|why| Failure::new(failure::SOFTWARE, "internal", why));
    let failure = match (result, unsaid) {
        (Ok(0), Some(failure)) | (Err(failure), _) => failure,
        (Ok(code), _) => {
            output::flush(LAST_WORDS);
            return code;
        }
    };
    // Older lines that still wait must not push the reason out.
    output::flush(LAST_WORDS);
    failure.tell(args.json);
    output::flush(LAST_WORDS);
    if failure.is_interrupt() {
        job::die_of_interrupt();
    }
    failure.code()
}

/// Runs the command that was given, and returns the exit status, or the command that this process becomes `next`.
async fn run(args: &Args, next: &mut Option<process::Command>) -> Result<u8, Failure> {
    match &args.command {
        Command::Lock(lock) => lock::run(args, &lock.run, &lock.asked()?).await,
        Command::Semaphore(semaphore) => lock::run(args, &semaphore.run, &semaphore.asked()).await,
        Command::Limit(limit) => limit::run(args, limit, next).await,
        Command::Inspect(inspect) => {
            survey::ask(args, async |quorum| {
                survey::until_ended(inspect::run(args, inspect, quorum)).await
            })
            .await
        }
        Command::Evict(evict) => {
            survey::ask(args, async |quorum| {
                survey::until_ended(evict::run(args, evict, quorum)).await
            })
            .await
        }
        Command::Resize(resize) => {
            survey::ask(args, async |quorum| {
                survey::until_ended(resize::run(args, resize, quorum)).await
            })
            .await
        }
        Command::Nodes(nodes) => {
            survey::ask(args, async |quorum| {
                survey::until_ended(nodes::run(args, nodes, quorum)).await
            })
            .await
        }
        Command::Watch => survey::ask(args, async |quorum| watch::run(args, quorum).await).await,
        Command::Bootstrap(args::Bootstrap { new, force }) => {
            let how = match (new, force) {
                (_, true) => How::Force,
                (true, false) => How::New,
                // Nothing is admitted that a person did not name.
                (false, false) => {
                    output::complain(
                        "without --new nothing is admitted: this does what `quorate raise-terms` does",
                    );
                    How::Raise
                }
            };
            survey::ask(args, async |quorum| bootstrap::run(args, how, quorum).await).await
        }
        Command::RaiseTerms => {
            let how = How::Raise;
            survey::ask(args, async |quorum| bootstrap::run(args, how, quorum).await).await
        }
        #[cfg(feature = "conformance")]
        Command::Conformance => conformance::run(args).await,
        Command::Demo => demo::run(args).await,
        Command::Torture(torture) => torture::run(args, torture).await,
        Command::Completions(asked) => Ok(generate::completions(asked.shell)),
        Command::Man(man) => generate::man(args, &man.dir),
    }
}

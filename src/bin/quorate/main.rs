//! The `quorate` command: quorum locks for shell scripts, cron jobs and operators.
//!
//! | file | what it is |
//! | --- | --- |
//! | `args` `args/` | the command line and its help |
//! | `lock` `inspect` `evict` `bootstrap` `nodes` `demo` | one command each |
//! | `torture/` | load, the history of it, and its judge |
//! | `child` | the locked command: its process group, its terminal, its end |
//! | `signals` | which signals are heard |
//! | `failure` | what can end a command early, with the exit status and the text of each |
//! | `survey` | reaching the nodes, and what they are, for the commands that only ask |
//! | `output` | text, tables, JSON and the log |

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
mod demo;
mod evict;
mod failure;
mod inspect;
mod lock;
mod nodes;
mod output;
mod signals;
mod survey;
mod torture;

use std::process::ExitCode;

use args::{Args, Command};
use failure::Failure;

fn main() -> ExitCode {
    // Not for people, so clap knows nothing of it: the locked command on its way to its own exec.
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|first| first == child::EXEC) {
        return ExitCode::from(child::exec(words));
    }
    let args = match args::parse() {
        Ok(args) => args,
        Err(code) => return ExitCode::from(code),
    };
    output::start_log(&args);
    // One thread: the locked command dies with the thread that starts it, so that has to be the one
    // that lives as long as the process.
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
    let code = runtime.block_on(run(&args)).unwrap_or_else(|failure| {
        failure.tell(args.json);
        failure.code()
    });
    // A name that is being looked up must not hold up the end.
    runtime.shutdown_background();
    ExitCode::from(code)
}

/// The exit status.
async fn run(args: &Args) -> Result<u8, Failure> {
    match &args.command {
        Command::Lock(lock) => lock::run(args, lock).await,
        Command::Inspect(inspect) => inspect::run(args, inspect).await,
        Command::Evict(evict) => evict::run(args, evict).await,
        Command::Nodes(nodes) => nodes::run(args, nodes).await,
        Command::Bootstrap(bootstrap) => bootstrap::run(args, bootstrap).await,
        Command::Demo => demo::run(args).await,
        Command::Torture(torture) => torture::run(args, torture).await,
    }
}

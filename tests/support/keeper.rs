//! Starts server processes so that none outlives the test process, no matter how that ends (panic, abort, `kill -9`).
//!
//! The kernel sends the child a SIGKILL when its parent ends (PR_SET_PDEATHSIG). "Parent" means the thread that spawned
//! it, and the threads of tests come and go. So one keeper thread, which lives as long as the process, spawns all of
//! them.

use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

type Order = (Command, Sender<io::Result<Child>>);

/// A command that runs `program` and dies with this process. Pass it to [`spawn`].
pub fn command(program: &Path) -> Command {
    // setpriv (util-linux) sets the signal and then becomes the program, under the same pid. Setting the signal between
    // fork and exec ourselves would need unsafe code.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

pub fn spawn(command: Command) -> Child {
    static KEEPER: OnceLock<Sender<Order>> = OnceLock::new();

    let keeper = KEEPER.get_or_init(|| {
        let (orders, inbox) = channel::<Order>();
        std::thread::Builder::new()
            .name("server-keeper".into())
            .spawn(move || {
                // This loop never ends, because the sender is in a static.
                for (mut command, answer) in inbox {
                    let _ = answer.send(command.spawn());
                }
            })
            .expect("a thread");
        orders
    });
    let (answer, spawned) = channel();
    keeper.send((command, answer)).expect("the keeper lives");
    spawned
        .recv()
        .expect("the keeper answers")
        .unwrap_or_else(|error| panic!("cannot run setpriv (Debian: util-linux): {error}"))
}

//! Starts this program again, as a process of its own that runs only one test.

use std::process::Command;

/// Runs `test` of `module`, which is the caller's `module_path!()`. The process ends with the thread that starts it, no
/// matter how that thread ends.
pub fn again(module: &str, test: &str) -> Command {
    let (_, module) = module.split_once("::").expect("a module of a test program");
    let mut command = Command::new("setpriv"); // Debian: util-linux
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{module}::{test}"), "--nocapture"]);
    command
}

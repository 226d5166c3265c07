//! A holder that stands still for longer than its TTL, and writes when it goes on.

use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use quorate::{FencingToken, fence::Gate};
use rustix::process::{Pid, Signal, kill_process};

use super::*;
use crate::support::again;

const AGENT: &str = "QUORATE_TEST_AGENT";

/// Its late write is refused by a store that has seen its successor's token.
pub(super) async fn a_holder_that_was_paused_beyond_its_ttl_is_refused_by_the_gate() {
    let agent = Agent::start();
    let mut paused = again(module_path!(), "a_careless_holder")
        .arg("--ignored")
        .env(AGENT, agent.url())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(paused.stdout.take().unwrap()).lines();
    let mut write = || loop {
        let line = lines.next().expect("it writes").unwrap();
        let Some(written) = line.strip_prefix("write ") else {
            continue;
        };
        let (token, is_valid) = written.split_once(' ').unwrap();
        return (token.parse::<FencingToken>().unwrap(), is_valid == "valid");
    };
    let gate = Gate::new();
    let (token, is_valid) = write();
    assert!(is_valid);
    gate.admit("invoice", token).unwrap();
    let pid = Pid::from_child(&paused);
    kill_process(pid, Signal::STOP).unwrap();
    let stopped = Instant::now();
    let consul = connect(&agent).await;
    let successor = consul.mutex("invoice").lock().await.unwrap();
    let took = stopped.elapsed();
    // Consul ends a session one to two ttls of 10 s after its renewal, which was at most a third of a ttl ago. 5 s are
    // for a busy machine.
    assert!((ms(5_000)..ms(25_000)).contains(&took), "{took:?}");
    gate.admit("invoice", successor.token()).unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    // This includes a token that it had written before it was stopped, and that is read only now.
    let (token, mut is_valid) = write();
    gate.admit("invoice", token).unwrap_err();
    while is_valid {
        is_valid = write().1;
    }
    assert!(successor.is_valid());
    gate.admit("invoice", successor.token()).unwrap();
    paused.kill().unwrap();
    paused.wait().unwrap();
    successor.release().await.unwrap();
    consul.shutdown().await;
}

/// Writes with its token for as long as it runs.
#[tokio::test]
#[ignore = "a process of the test above"]
async fn a_careless_holder() {
    let consul = Consul::connect(std::env::var(AGENT).unwrap())
        .await
        .unwrap();
    let lease = consul.mutex("invoice").lock().await.unwrap();
    loop {
        let is_valid = if lease.is_valid() { "valid" } else { "over" };
        println!("write {} {is_valid}", lease.token());
        tokio::time::sleep(ms(50)).await;
    }
}

//! Servers that answer and refuse writes, because their memory is full, their disk is broken or their replicas are
//! missing. They have a state of their own, are not counted, and come back by themselves. The servers are real.

use std::{
    fs,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::{
    command::{Running, quorate, run},
    support::{Fleet, Kind, Server, ServerOptions},
};
use futures::StreamExt as _;
use quorate::{Error, NodeState, Quorum};
use rustix::process::Signal;
use tokio::time::{sleep, timeout};

/// A handshake shows the state, and it comes every 5 s. This is twice that time.
const PATIENCE: Duration = Duration::from_secs(2 * 5);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The reason why a server refuses writes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cause {
    /// `maxmemory` is reached.
    Oom,
    /// The last save failed.
    Misconf,
    /// `min-replicas-to-write` are not there.
    Noreplicas,
}

impl Cause {
    const ALL: [Self; 3] = [Self::Oom, Self::Misconf, Self::Noreplicas];

    fn code(self) -> &'static str {
        match self {
            Self::Oom => "OOM",
            Self::Misconf => "MISCONF",
            Self::Noreplicas => "NOREPLICAS",
        }
    }

    fn set(self, server: &Server, on: bool) {
        let config = |key: &str, value: &str| drop(server.cmd(&["CONFIG", "SET", key, value]));
        match self {
            Self::Oom => config("maxmemory", if on { "1" } else { "0" }),
            Self::Noreplicas => config("min-replicas-to-write", if on { "1" } else { "0" }),
            Self::Misconf => {
                // A directory is in the place of the file, so no user can rename a file to it.
                let file = server.dir().join("dump.rdb");
                if on {
                    let _ = fs::remove_file(&file);
                    fs::create_dir(&file).unwrap();
                } else {
                    fs::remove_dir(&file).unwrap();
                }
                server.cmd(&["BGSAVE"]);
                let wanted = if on { "err" } else { "ok" };
                let deadline = Instant::now() + PATIENCE;
                while server.info("rdb_bgsave_in_progress").as_deref() != Some("0")
                    || server.info("rdb_last_bgsave_status").as_deref() != Some(wanted)
                {
                    assert!(Instant::now() < deadline, "BGSAVE does not end {wanted}");
                    std::thread::sleep(ms(10));
                }
            }
        }
    }
}

/// Three servers that are configured to save, but never get to it by themselves.
fn fleet(kind: Kind) -> Fleet {
    Fleet::start_with(3, ServerOptions::new(kind).save("86400 1000000"))
}

async fn connect(fleet: &Fleet) -> Quorum {
    let quorum = Quorum::builder()
        .nodes(fleet.urls())
        .node_timeout(ms(2_000))
        .connect()
        .await
        .unwrap();
    quorum.bootstrap_forced().await.unwrap();
    quorum
}

async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        sleep(ms(5)).await;
    }
}

fn refusing(quorum: &Quorum, code: &str) -> usize {
    let nodes = quorum.nodes();
    let refuses =
        |state: &NodeState| matches!(state, NodeState::RefusesWrites(why) if why.starts_with(code));
    nodes.iter().filter(|node| refuses(&node.state)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_master_that_refuses_writes_is_not_counted_and_comes_back() {
    for kind in Kind::ALL {
        let fleet = fleet(kind);
        let quorum = connect(&fleet).await;
        for cause in Cause::ALL {
            cause.set(&fleet[0], true);
            let what = format!("{kind:?}: {cause:?}");
            wait_until(&what, || refusing(&quorum, cause.code()) == 1).await;
            let health = quorum.health();
            assert_eq!((health.voting, health.spare), (2, 0), "{what}");
            let lease = quorum.mutex("a").lock().await.unwrap();
            run(&fleet.urls(), &["nodes"])
                .is(0)
                .prints(&format!("refuses writes: {}: ", cause.code()))
                .prints("2 of 3 vote and 2 are needed: locks can be taken, and no more may fail");
            lease.release().await.unwrap();

            cause.set(&fleet[0], false);
            wait_until(&what, || quorum.health().voting == 3).await;
            assert_eq!(quorum.health().spare, 1, "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_refuses_writes_is_an_outage_until_it_takes_them() {
    for kind in Kind::ALL {
        let fleet = fleet(kind);
        let quorum = connect(&fleet).await;
        for cause in Cause::ALL {
            fleet[..2].iter().for_each(|server| cause.set(server, true));
            let what = format!("{kind:?}: {cause:?}");
            wait_until(&what, || refusing(&quorum, cause.code()) == 2).await;
            let health = quorum.health();
            assert_eq!((health.voting, health.spare), (1, 0), "{what}");
            assert!(!health.is_ready(), "{what}");
            let error = quorum.mutex("a").try_lock().await.unwrap_err();
            assert!(matches!(error, Error::NoQuorum(_)), "{what}: {error}");
            assert!(error.to_string().contains(cause.code()), "{what}: {error}");
            let nodes = run(&fleet.urls(), &["nodes", "--json"]).is(69).json();
            assert_eq!(nodes["voting"], 1, "{what}: {nodes}");
            assert_eq!(nodes["nodes"][0]["state"], "refuses_writes", "{what}");
            let reason = nodes["nodes"][0]["reason"].as_str().unwrap();
            assert!(reason.starts_with(cause.code()), "{what}: {reason}");
            if cause == Cause::Oom {
                let voting = quorum.voting(ms(1_500)).await;
                assert!(
                    matches!(voting, Err(Error::NoQuorum(_))),
                    "{what}: {voting:?}"
                );
                let short = ["--connect-timeout", "2s"];
                for bootstrap in [&["raise-terms"][..], &["bootstrap", "--new"]] {
                    let _ = run(&fleet.urls(), &[bootstrap, &short].concat()).is(69);
                }
            }

            fleet[..2]
                .iter()
                .for_each(|server| cause.set(server, false));
            wait_until(&what, || quorum.health().voting == 3).await;
            let lease = quorum.mutex("a").try_lock().await.unwrap();
            lease.expect("nobody has it").release().await.unwrap();
            let _ = run(&fleet.urls(), &["nodes"]).is(0);
        }
    }
}

/// Writes the key that each handshake writes, as a client does that was met at this moment. `early` is added, so that
/// the key is recent for longer: it counts as recent within 1 s of the server's clock, before and after.
fn another_client_is_met(server: &Server, early: Duration) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + early;
    server.cmd(&["SET", "quorate:time", &now.as_micros().to_string()]);
}

/// No process has tried to lock, and another client was met just before the servers began to refuse writes.
#[test]
fn a_fresh_process_says_that_masters_refuse_writes_though_another_was_just_met() {
    for kind in Kind::ALL {
        let fleet = fleet(kind);
        let urls = fleet.urls();
        let _ = run(&urls, &["bootstrap", "--force"]).is(0);
        for cause in Cause::ALL {
            for args in [
                &["nodes"][..],
                &["nodes", "--wait", "majority", "--timeout", "1s"],
                &["bootstrap", "--connect-timeout", "2s"],
            ] {
                for server in &fleet[..] {
                    another_client_is_met(server, ms(900));
                    cause.set(server, true);
                }
                let done = run(&urls, args);
                fleet.iter().for_each(|server| cause.set(server, false));
                let told = format!("{}{}", done.out, done.err);
                let count = told.matches(cause.code()).count();
                assert!(count >= 3, "{kind:?} {cause:?} {args:?}: {done:#?}");
                let _ = done.is(69);
                // The same holds for the end of the refusal.
                let _ = run(&urls, &["nodes"]).is(0).prints("3 of 3 vote");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn masters_that_take_writes_again_are_counted_though_others_are_met_all_the_time() {
    let fleet = fleet(Kind::Redis);
    let quorum = connect(&fleet).await;
    let oom = |on| fleet.iter().for_each(|server| Cause::Oom.set(server, on));
    oom(true);
    wait_until("all refuse writes", || refusing(&quorum, "OOM") == 3).await;
    oom(false);
    wait_until("all vote", || {
        for server in &fleet[..] {
            another_client_is_met(server, ms(0));
        }
        quorum.health().voting == 3
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_outlives_the_time_in_which_all_masters_are_full() {
    for kind in Kind::ALL {
        let fleet = fleet(kind);
        let quorum = connect(&fleet).await;
        let held = quorum.mutex("held").ttl(ms(3_000)).lock().await.unwrap();
        fleet.iter().for_each(|server| Cause::Oom.set(server, true));
        wait_until("all refuse writes", || refusing(&quorum, "OOM") == 3).await;
        sleep(ms(4_500)).await;
        assert_eq!(refusing(&quorum, "OOM"), 3, "{kind:?}");
        assert!(held.is_valid(), "{kind:?}: it is renewed");
        held.release().await.unwrap();
        // A majority confirms the release. The third server may delete the lock a little later.
        let left = fleet.leftover_locks_after(ms(1_500), "quorate");
        assert_eq!(left, [""; 0], "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_of_writes_is_told_once() {
    let fleet = fleet(Kind::Valkey);
    let quorum = connect(&fleet).await;
    wait_until("all vote", || quorum.health().voting == 3).await;
    let urls = fleet.urls();
    let mut watch = Running::start(quorate(&urls, &["watch"]));
    watch.until("locks can be taken");
    let mut changes = quorum.node_changes();
    for _ in 0..3 {
        changes.next().await.unwrap();
    }
    Cause::Oom.set(&fleet[1], true);
    let told = timeout(PATIENCE, changes.next()).await.unwrap().unwrap();
    assert!(matches!(told.state, NodeState::RefusesWrites(_)), "{told}");
    // Requests fail meanwhile, and handshakes continue.
    for _ in 0..30 {
        quorum
            .mutex("a")
            .lock()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        sleep(ms(100)).await;
    }
    let more = timeout(ms(10), changes.next()).await;
    assert!(more.is_err(), "it was told already: {more:?}");
    Cause::Oom.set(&fleet[1], false);
    let told = timeout(PATIENCE, changes.next()).await.unwrap().unwrap();
    assert_eq!(told.state, NodeState::Voting);
    let line = watch.until("refuses writes");
    assert!(line.contains("OOM"), "{line}");
    assert!(!watch.until("voting").contains("refuses"));
    watch.signal(Signal::TERM);
    let rest = watch.done().is(0).out;
    assert!(!rest.contains("refuses writes"), "{rest}");
}

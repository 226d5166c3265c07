//! `main` returns, or a runtime is dropped. The leases that are dropped with it are released although nobody waits for
//! that. Leases last 10 s here, and every check is done within a second.

use std::cell::RefCell;
use std::future::{Future, pending};
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::support::{self, Fleet, Kind, Server};
use quorate::{Builder, Error, Lease, MemoryNode, Quorum, Renewal};
use tokio::{
    runtime::{self, Runtime},
    sync::oneshot,
};

const PREFIX: &str = "quorate";
const ROUNDS: u32 = 20;
/// The time in which a server on a busy machine reads what was written to it. It is far below the ttl.
const SOON: Duration = Duration::from_secs(1);

fn builder() -> Builder {
    Quorum::builder().node_timeout(Duration::from_secs(5))
}

/// A fleet that votes.
fn fleet(kind: Kind) -> Fleet {
    let fleet = Fleet::start(3, kind);
    let quorum = async {
        let quorum = builder().nodes(fleet.urls()).connect().await.unwrap();
        quorum.bootstrap_forced().await.unwrap();
        assert_eq!(quorum.shutdown().await, [""; 0]);
    };
    current_thread().block_on(quorum);
    fleet
}

fn current_thread() -> Runtime {
    runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn multi_thread() -> Runtime {
    runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

type MakeRuntime = fn() -> Runtime;

const RUNTIMES: [(&str, MakeRuntime); 2] = [
    ("current-thread", current_thread),
    ("multi-thread", multi_thread),
];

/// As `#[tokio::main]` does: the future ends, and then the runtime is dropped.
fn as_main<T>(runtime: Runtime, main: impl Future<Output = T>) -> T {
    let done = runtime.block_on(main);
    drop(runtime);
    done
}

async fn lock(quorum: &Quorum, name: impl Into<String>) -> Lease {
    quorum.mutex(name).lock().await.unwrap()
}

/// Checks that every name is free, because no majority has it. A single node may have it: it answered late, when nobody
/// waited for it.
#[track_caller]
fn all_is_free(fleet: &Fleet, what: &str) {
    let left = fleet.leftover_locks_after(SOON, PREFIX);
    let name = |line: &String| Some(line.split_once(": ")?.1.split_once(" for ")?.0.to_owned());
    let mut names: Vec<String> = left.iter().map(|line| name(line).unwrap()).collect();
    names.sort_unstable();
    let taken = names.windows(2).find(|pair| pair[0] == pair[1]);
    assert_eq!(taken, None, "{what}: {left:#?}");
}

#[test]
fn a_lease_that_main_drops_is_released() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let fleet = fleet(kind);
        for (what, runtime) in RUNTIMES {
            for round in 0..ROUNDS {
                as_main(runtime(), async {
                    let quorum = Quorum::connect(fleet.urls()).await.unwrap();
                    let _lease = lock(&quorum, format!("{what} {round}")).await;
                });
                all_is_free(&fleet, what);
            }
        }
    }
}

/// The quorum is dropped before its many leases.
#[test]
fn a_hundred_leases_without_a_quorum_are_released() {
    let fleet = fleet(Kind::Redis);
    for (what, runtime) in RUNTIMES {
        as_main(runtime(), async {
            let quorum = Quorum::connect(fleet.urls()).await.unwrap();
            let mut leases = Vec::new();
            for i in 0..100 {
                leases.push(lock(&quorum, format!("{what} {i}")).await);
            }
            drop(quorum);
        });
        all_is_free(&fleet, what);
    }
}

/// Each lease writes a RELEASE of its own. Together they are far more than a server reads in one go.
#[test]
fn hundreds_of_leases_in_tasks_are_released() {
    let fleet = fleet(Kind::Redis);
    for (what, runtime) in RUNTIMES {
        as_main(runtime(), async {
            let quorum = Quorum::connect(fleet.urls()).await.unwrap();
            for i in 0..300 {
                let lease = lock(&quorum, format!("{what} {i}")).await;
                tokio::spawn(async move {
                    let _lease = lease;
                    pending::<()>().await;
                });
            }
            // Time to read the votes that nobody waited for.
            tokio::time::sleep(Duration::from_millis(50)).await;
        });
        all_is_free(&fleet, what);
    }
}

/// A runtime drops tasks with the leases that they hold. The engine's task is dropped before them.
#[test]
fn leases_in_spawned_tasks_are_released() {
    let fleet = fleet(Kind::Redis);
    for (what, runtime) in RUNTIMES {
        for round in 0..ROUNDS {
            as_main(runtime(), async {
                let quorum = Quorum::connect(fleet.urls()).await.unwrap();
                for i in 0..5 {
                    let lease = lock(&quorum, format!("{what} {round} {i}")).await;
                    tokio::spawn(async move {
                        let _lease = lease;
                        pending::<()>().await;
                    });
                }
                let (begins, has_begun) = oneshot::channel();
                let section = quorum.mutex(format!("{what} {round} run")).run(|_| async {
                    begins.send(()).unwrap();
                    pending::<()>().await;
                });
                tokio::spawn(section);
                has_begun.await.unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
            });
            all_is_free(&fleet, what);
        }
    }
}

/// Acquisitions of which nobody knows whether they were granted. This test does not use real servers. A server that
/// answers when the connection is already closed drops the client, perhaps before it has read the RELEASE.
#[test]
fn acquisitions_under_way_are_rolled_back() {
    for (what, runtime) in RUNTIMES {
        let nodes: [MemoryNode; 3] = Default::default();
        as_main(runtime(), async {
            let quorum = Quorum::builder().nodes(&nodes).connect().await.unwrap();
            quorum.bootstrap_forced().await.unwrap();
            let held = lock(&quorum, "0").await;
            for node in &nodes {
                node.delay(Duration::from_millis(300));
            }
            for i in 0..20 {
                // Two tasks want each name, so one of them waits.
                tokio::spawn(quorum.mutex(format!("{}", i / 2)).lock());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            drop(held);
        });
        for node in &nodes {
            node.delay(Duration::ZERO);
        }
        as_main(runtime(), async {
            let quorum = Quorum::builder().nodes(&nodes).connect().await.unwrap();
            for i in 0..10 {
                let inspected = quorum.inspect(format!("{i}")).await.unwrap();
                // The names were asked for, and are free.
                assert!(inspected.newest_token().is_some(), "{what}: {inspected}");
                let mut seen = inspected.nodes.iter();
                assert!(
                    seen.all(|node| node.holder.is_none()),
                    "{what}: {inspected}"
                );
            }
        });
    }
}

#[test]
fn a_panic_in_main_releases_too() {
    let fleet = fleet(Kind::Redis);
    for (what, runtime) in RUNTIMES {
        let urls = fleet.urls();
        let panicked = std::thread::spawn(move || {
            as_main(runtime(), async {
                let quorum = Quorum::connect(urls).await.unwrap();
                let _lease = lock(&quorum, "a").await;
                panic!("as a test wants it");
            })
        });
        assert!(panicked.join().is_err());
        all_is_free(&fleet, what);
    }
}

#[test]
fn over_a_unix_socket() {
    let fleet = fleet(Kind::Redis);
    let urls: Vec<String> = fleet.iter().map(Server::unix_url).collect();
    for (what, runtime) in RUNTIMES {
        as_main(runtime(), async {
            // This list names the same masters in another way.
            let word = builder().nodes(fleet.urls()).connect().await.unwrap();
            let quorum = builder().nodes(&urls).fleet(word.fleet()).connect();
            let quorum = quorum.await.unwrap();
            let _lease = lock(&quorum, "a").await;
        });
        all_is_free(&fleet, what);
    }
}

/// The reason why a node may miss a release. A server reads what a closed connection has written, unless it fails to
/// answer on it before.
#[test]
fn a_server_at_work_on_a_connection_that_is_reset_does_not_read_the_rest() {
    // About 100 ms of work.
    let slow = redis::cmd("EVAL")
        .arg("local x = 0; for i = 1, 8000000 do x = x + i end; return 1")
        .arg(0)
        .get_packed_command();
    let ping = redis::cmd("PING").get_packed_command();
    let mut last = redis::cmd("SET").arg("last").arg(1).get_packed_command();
    last.splice(
        ..0,
        redis::cmd("CLIENT")
            .arg("REPLY")
            .arg("OFF")
            .get_packed_command(),
    );
    let reads_the_last = |server: &Server, leaves_unread: bool, is_busy: bool| -> bool {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        if leaves_unread {
            stream.write_all(&ping).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        if is_busy {
            stream.write_all(&slow).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        stream.write_all(&last).unwrap();
        drop(stream);
        std::thread::sleep(Duration::from_millis(500));
        redis::from_redis_value(server.cmd(&["DEL", "last"])).unwrap()
    };
    for kind in Kind::ALL {
        let server = Server::start(kind);
        assert!(reads_the_last(&server, false, true), "{kind:?}");
        assert!(reads_the_last(&server, true, false), "{kind:?}");
        // On a busy machine the server may read everything in one go.
        let misses = (0..20).any(|_| !reads_the_last(&server, true, true));
        assert!(misses, "{kind:?}");
    }
}

/// A stopped node gets what its socket takes, and executes it when it goes on.
#[test]
fn nobody_waits_for_a_node_that_hangs() {
    let fleet = fleet(Kind::Redis);
    for (what, runtime) in RUNTIMES {
        let runtime = runtime();
        let lease = runtime.block_on(async {
            let quorum = Quorum::connect(fleet.urls()).await.unwrap();
            let lease = lock(&quorum, what).await;
            (quorum, lease)
        });
        fleet[0].sigstop();
        fleet[1].sigstop();
        let start = Instant::now();
        as_main(runtime, async move { drop(lease) });
        let took = start.elapsed();
        fleet[0].sigcont();
        fleet[1].sigcont();
        // Far below the ttl of 10 s and the shutdown timeout of 5 s.
        assert!(took < 2 * SOON, "{took:?}");
        all_is_free(&fleet, what);
    }
}

/// A caller that waits on another runtime is told at once, although a lease still keeps the connections.
#[test]
fn callers_on_another_runtime_are_told() {
    let fleet = fleet(Kind::Redis);
    // A current-thread runtime does nothing while nobody blocks on it.
    for what in ["one", "two"] {
        let (theirs, ours) = (multi_thread(), current_thread());
        let quorum = theirs.block_on(Quorum::connect(fleet.urls())).unwrap();
        let held = ours.block_on(lock(&quorum, what));
        let other = ours.block_on(lock(&quorum, format!("{what} 2")));
        let waiter = ours.spawn(quorum.mutex(what).lock());
        ours.block_on(async { tokio::time::sleep(Duration::from_millis(30)).await });
        drop(theirs);
        ours.block_on(async {
            let all = async {
                assert!(matches!(waiter.await.unwrap(), Err(Error::RuntimeGone)));
                assert!(!held.is_valid() && !other.is_valid());
                let released = other.release().await;
                assert!(matches!(released, Err(Error::Lost(_) | Error::RuntimeGone)));
                let inspected = quorum.inspect("a").await;
                assert!(matches!(inspected, Err(Error::RuntimeGone)));
                assert_eq!(quorum.shutdown().await, [""; 0]);
            };
            tokio::time::timeout(SOON, all).await.expect("a hang");
        });
        assert_eq!(quorum.health().voting, 0);
        drop(held);
    }
}

/// A caller that asks at the very moment of the end is told, too.
#[test]
fn callers_on_other_threads_are_told_though_a_lease_stays() {
    for round in 0..300 {
        let runtime = current_thread();
        let (quorum, lease) = runtime.block_on(async {
            let quorum = Quorum::in_memory(3);
            let lease = lock(&quorum, "a").await;
            (quorum, lease)
        });
        let started = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut cx = Context::from_waker(Waker::noop());
                    started.fetch_add(1, SeqCst);
                    let mut asked = Vec::new();
                    while asked.len() < 3_000 {
                        let mut call = Box::pin(quorum.inspect("z"));
                        match call.as_mut().poll(&mut cx) {
                            Poll::Pending => asked.push(call),
                            Poll::Ready(_) => break,
                        }
                    }
                    let all = futures::future::join_all(asked);
                    let all = async { tokio::time::timeout(SOON * 5, all).await };
                    for answer in current_thread().block_on(all).expect("a hang") {
                        assert!(matches!(answer, Err(Error::RuntimeGone)));
                    }
                });
            }
            while started.load(SeqCst) < 4 {
                std::hint::spin_loop();
            }
            for _ in 0..round % 50 * 40 {
                std::hint::spin_loop();
            }
            drop(runtime);
        });
        drop(lease);
    }
}

/// A panic in code that is called at the end, such as a waker or a log, leaves nobody waiting.
#[test]
fn after_a_panic_at_the_end_callers_are_told() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("as a test wants it");
        }
    }
    let runtime = current_thread();
    let (quorum, lease) = runtime.block_on(async {
        let quorum = Quorum::in_memory(3);
        let lease = lock(&quorum, "a").await;
        (quorum, lease)
    });
    let mut wish = Box::pin(quorum.mutex("a").lock());
    let waker = Waker::from(Arc::new(Panics));
    let polled = wish.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    drop(runtime);
    let asked = current_thread().block_on(async {
        let asked = tokio::time::timeout(SOON, quorum.inspect("a"));
        asked.await.expect("a hang")
    });
    assert!(matches!(asked, Err(Error::RuntimeGone)));
    assert!(!lease.is_valid());
}

#[test]
fn a_lease_is_dropped_long_after_its_runtime() {
    let nodes: [MemoryNode; 3] = Default::default();
    let runtime = current_thread();
    let lease = runtime.block_on(async {
        let quorum = Quorum::builder().nodes(&nodes).connect().await.unwrap();
        quorum.bootstrap_forced().await.unwrap();
        let lease = lock(&quorum, "a").await;
        nodes[0].delay(Duration::from_millis(100));
        nodes[1].stop();
        lease
    });
    drop(runtime);
    drop(lease);
    let inspected = as_main(current_thread(), async {
        let quorum = Quorum::builder().nodes(&nodes).connect().await.unwrap();
        quorum.inspect("a").await.unwrap()
    });
    assert!(inspected.holder().is_none(), "{inspected}");
}

/// Outside of its runtime, a clock that was paused and advanced shows an earlier time.
#[test]
fn a_lease_is_released_though_the_clock_goes_back_at_the_end_of_a_paused_runtime() {
    let nodes: [MemoryNode; 3] = Default::default();
    let paused = runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let lease = paused.block_on(async {
        let quorum = Quorum::builder().nodes(&nodes).connect().await.unwrap();
        quorum.bootstrap_forced().await.unwrap();
        let lease = lock(&quorum, "a").await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(lease.is_valid());
        lease
    });
    drop(paused);
    drop(lease);
    let inspected = as_main(current_thread(), async {
        let quorum = Quorum::builder().nodes(&nodes).connect().await.unwrap();
        quorum.inspect("a").await.unwrap()
    });
    assert!(inspected.holder().is_none(), "{inspected}");
}

/// Destructors of thread-locals run when other thread-locals are gone already. A panic there would abort the process.
#[test]
fn a_lease_in_a_thread_local_outlives_its_runtime() {
    thread_local! {
        static KEPT: RefCell<Option<Lease>> = const { RefCell::new(None) };
    }
    let fleet = fleet(Kind::Redis);
    let kept = std::thread::spawn(move || {
        KEPT.with(|_| ());
        let runtime = current_thread();
        let lease = runtime.block_on(async {
            let quorum = Quorum::connect(fleet.urls()).await.unwrap();
            lock(&quorum, "a").await
        });
        drop(runtime);
        KEPT.with(|kept| *kept.borrow_mut() = Some(lease));
    });
    kept.join().unwrap();
}

/// The time for which a client has witnessed a quarantine is written at the end, even where nobody calls `shutdown`.
#[test]
fn the_time_that_main_watched_a_quarantine_is_written_at_the_end() {
    let fleet = Fleet::start(3, Kind::Redis);
    for (_, runtime) in RUNTIMES {
        let watched = || {
            let record = fleet[0].cmd(&["GET", "quorate:boot"]);
            let record: String = redis::from_redis_value(record).unwrap_or_default();
            let w = record.rsplit(' ').next().and_then(|w| w.parse().ok());
            w.unwrap_or(0_u64)
        };
        let before = watched();
        as_main(runtime(), async {
            let quorum = builder().nodes(fleet.urls()).connect().await.unwrap();
            // This is less than the second after which it would be written anyway.
            tokio::time::sleep(Duration::from_millis(700)).await;
            drop(quorum);
        });
        // The first handshake is a little later than the connection.
        let enough = || watched() >= before + 400;
        let deadline = Instant::now() + SOON;
        while !enough() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(enough(), "{before} and {}", watched());
    }
}

#[test]
fn in_memory_nodes_outlive_the_runtime_and_are_free() {
    for (_, runtime) in RUNTIMES {
        let nodes: [MemoryNode; 3] = Default::default();
        as_main(runtime(), async {
            let quorum = Quorum::builder().nodes(&nodes).connect().await.unwrap();
            quorum.bootstrap_forced().await.unwrap();
            let lease = lock(&quorum, "a").await;
            tokio::spawn(async move {
                let _lease = lease;
                pending::<()>().await;
            });
        });
        let taken = as_main(runtime(), async {
            let quorum = Quorum::builder().nodes(&nodes).connect().await.unwrap();
            quorum.mutex("a").try_lock().await.unwrap().is_some()
        });
        assert!(taken);
    }
}

/// Only a RELEASE frees the lock: an abandoned or forgotten lease stays for its ttl.
#[test]
fn an_abandoned_lease_is_not_released() {
    let fleet = fleet(Kind::Redis);
    for (what, runtime) in RUNTIMES {
        as_main(runtime(), async {
            let quorum = Quorum::connect(fleet.urls()).await.unwrap();
            let mutex = quorum.mutex(what).renewal(Renewal::off());
            let lease = mutex.lock().await.unwrap();
            let lease = abandoned_on_drop(lease);
            tokio::spawn(async move {
                pending::<()>().await;
                drop(lease);
            });
        });
        std::thread::sleep(Duration::from_millis(100));
        let left = fleet.leftover_locks(PREFIX);
        let left = left.iter().filter(|key| key.contains(what));
        assert!(left.count() >= 2, "{what}");
    }
}

fn abandoned_on_drop(lease: Lease) -> impl Drop {
    struct Abandon(Option<Lease>);
    impl Drop for Abandon {
        fn drop(&mut self) {
            if let Some(lease) = self.0.take() {
                lease.abandon();
            }
        }
    }
    Abandon(Some(lease))
}

#[cfg(feature = "tls-rustls")]
#[test]
fn over_tls() {
    // This runs in a process of its own, because the variable for certificates must not be set while other threads run.
    if let Ok(urls) = std::env::var("END_OF_MAIN_URLS") {
        for (_, runtime) in RUNTIMES {
            as_main(runtime(), async {
                let quorum = Quorum::connect(urls.split(',')).await.unwrap();
                let lease = lock(&quorum, "in a task").await;
                tokio::spawn(async move {
                    let _lease = lease;
                    pending::<()>().await;
                });
                let _lease = lock(&quorum, "in main").await;
                let inspected = quorum.inspect("in main").await.unwrap();
                assert!(inspected.holder().is_some());
            });
        }
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let certificates = support::tls::certificates(dir.path());
    let options = support::ServerOptions::new(Kind::Redis).tls(&certificates);
    let fleet = Fleet::start_with(3, options);
    let child = |test: &str| {
        support::again(module_path!(), test)
            .env("END_OF_MAIN_URLS", fleet.urls().join(","))
            .env("SSL_CERT_FILE", &certificates.ca)
            .output()
            .unwrap()
    };
    for test in ["bootstrap_for_tls", "over_tls"] {
        let done = child(test);
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
    }
    all_is_free(&fleet, "tls");
}

/// Used by [`over_tls`] only.
#[cfg(feature = "tls-rustls")]
#[test]
fn bootstrap_for_tls() {
    if let Ok(urls) = std::env::var("END_OF_MAIN_URLS") {
        current_thread().block_on(async {
            let quorum = Quorum::connect(urls.split(',')).await.unwrap();
            quorum.bootstrap_forced().await.unwrap();
            quorum.shutdown().await;
        });
    }
}

//! No node is called late because of a clock alone (protocol §2, Stalled). A client that stood still finds that its
//! deadlines have passed and that answers are unread, and it reads these first. A node that cannot keep up costs
//! neither the other nodes nor this process's memory.

use std::{
    fs,
    future::poll_fn,
    path::Path,
    process::Child,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::Poll,
    time::{Duration, Instant},
};

use crate::support::{Fleet, HANG, Kind, Proxy, Server, Stalls, again};
use futures::future::{FutureExt as _, join_all};
use quorate::{Builder, Error, NodeState, Quorum};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{runtime, task::JoinHandle, time::sleep};

const TASKS: usize = 64;
/// The number of tasks of a load, and of the control that it is compared with.
const EACH: usize = 32;
/// The number of stops in one test that are longer than a first term. In each of them a task can lose one lock.
const LONG_STOPS: usize = 4;
/// The time for which a lock that was handed over is good until it is confirmed: a second, less drift and notice.
const FIRST_TERM: Duration = Duration::from_millis(1_000 - 12 - 50);
/// After a shutdown the servers only have to read what was sent to them, on a busy machine too. A hand-over that
/// is left behind lasts for a second. A lease lasts longer, because it is renewed while two thirds of its 10 s are left.
const SOON: Duration = ms(900);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn builder() -> Builder {
    Quorum::builder().fleet("tests").node_timeout(ms(500))
}

async fn connect(builder: Builder, urls: Vec<String>) -> Quorum {
    let quorum = builder.nodes(urls).connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    quorum
}

/// Tasks that lock and release until they are told to stop. It has the time of each lock, and the errors.
struct Load {
    over: Arc<AtomicBool>,
    took: Arc<Mutex<Vec<Duration>>>,
    tasks: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    fn start(quorum: &Quorum, tasks: usize) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let took = Arc::default();
        let tasks = (0..tasks).map(|task| {
            let (quorum, over, took) = (quorum.clone(), Arc::clone(&over), Arc::clone(&took));
            tokio::spawn(work(quorum, task, over, took))
        });
        Self {
            tasks: tasks.collect(),
            over,
            took,
        }
    }

    /// The number of locks since the last call, and the 99th percentile of their times.
    fn p99(&self) -> (usize, Duration) {
        let mut took = std::mem::take(&mut *self.took.lock().unwrap());
        took.sort();
        (took.len(), took[took.len() * 99 / 100])
    }

    async fn stop(self) -> Vec<String> {
        self.over.store(true, SeqCst);
        let errors = join_all(self.tasks).await;
        errors.into_iter().flat_map(Result::unwrap).collect()
    }
}

async fn work(
    quorum: Quorum,
    task: usize,
    over: Arc<AtomicBool>,
    took: Arc<Mutex<Vec<Duration>>>,
) -> Vec<String> {
    let (mut errors, mut excused) = (Vec::new(), 0);
    // Every fourth task uses its neighbour's name.
    let name = if task.is_multiple_of(4) {
        task + 1
    } else {
        task
    };
    let is_handed_over = task % 4 <= 1;
    let mutex = quorum.mutex(format!("name {name}"));
    while !over.load(SeqCst) {
        let start = Instant::now();
        match mutex.lock().await {
            Ok(lease) => {
                took.lock().unwrap().push(start.elapsed());
                match lease.release().await {
                    Ok(()) => {}
                    // The lock was handed over in the round trip before a stop that was longer than the first term.
                    Err(Error::Lost(_)) if is_handed_over && start.elapsed() >= FIRST_TERM => {
                        excused += 1;
                    }
                    Err(error) => errors.push(format!("release: {error}")),
                }
            }
            Err(error) => {
                errors.push(format!("lock: {error}"));
                sleep(ms(5)).await;
            }
        }
    }
    // No test stops a client for this long more often.
    if excused > LONG_STOPS {
        errors.push(format!("{name}: {excused} handed over and lost"));
    }
    errors
}

// ---- the client stands still ---------------------------------------------------------------

/// Lets every task run that is ready, but not the reactor. So messages that arrive meanwhile are not noticed.
async fn behind_the_others() {
    for _ in 0..5 {
        let mut polled = false;
        poll_fn(|cx| {
            cx.waker().wake_by_ref();
            match std::mem::replace(&mut polled, true) {
                false => Poll::Pending,
                true => Poll::Ready(()),
            }
        })
        .await;
    }
}

#[test]
fn a_blocked_runtime_makes_no_node_late() {
    let fleet = Fleet::start(3, Kind::Redis);
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let urls = fleet.urls();
    let test = async {
        let quorum = connect(builder(), urls).await;
        let load = Load::start(&quorum, TASKS);
        for _ in 0..4 {
            for blocked in [550, 1_200] {
                sleep(ms(150)).await;
                behind_the_others().await;
                std::thread::sleep(ms(blocked));
            }
        }
        sleep(ms(300)).await;
        let (done, _) = load.p99();
        let errors = load.stop().await;
        assert!(errors.is_empty(), "{} errors: {}", errors.len(), errors[0]);
        assert!(done > 500, "{done}");
        // Without any load.
        let mut errors = Vec::new();
        for _ in 0..20 {
            let lock = tokio::spawn(quorum.mutex("a").lock());
            behind_the_others().await;
            std::thread::sleep(ms(550));
            // This wakes the engine before the reactor has polled the sockets.
            let other = tokio::spawn(quorum.mutex("b").lock());
            for lock in [lock, other] {
                match lock.await.unwrap() {
                    Ok(lease) => lease.release().await.unwrap(),
                    Err(error) => errors.push(error),
                }
            }
        }
        assert!(errors.is_empty(), "{} of 40: {}", errors.len(), errors[0]);
        assert_eq!(quorum.health().voting, 3);
        quorum.shutdown().await;
    };
    // The runtime polls the sockets before it returns to the future that it blocks on. So the test is a task like the
    // others.
    runtime.block_on(async { tokio::spawn(test).await.unwrap() });
    assert_eq!(fleet.leftover_locks_after(SOON, "quorate"), [""; 0]);
}

const URLS: &str = "QUORATE_TEST_URLS";
const DIR: &str = "QUORATE_TEST_DIR";

/// Returns true if this process is the client that is stopped. Its work is done when this returns.
fn was_client(mut runtime: runtime::Builder) -> bool {
    let Ok(urls) = std::env::var(URLS) else {
        return false;
    };
    let dir = std::env::var(DIR).unwrap();
    let dir = Path::new(&dir);
    runtime.enable_all().build().unwrap().block_on(async {
        let urls = urls.split(',').map(str::to_owned).collect();
        let quorum = connect(builder(), urls).await;
        let load = Load::start(&quorum, TASKS);
        fs::write(dir.join("started"), "").unwrap();
        while !dir.join("stop").exists() {
            sleep(ms(10)).await;
        }
        let (done, _) = load.p99();
        let errors = load.stop().await;
        fs::write(dir.join("done"), done.to_string()).unwrap();
        fs::write(dir.join("errors"), errors.join("\n")).unwrap();
        quorum.shutdown().await;
    });
    true
}

/// A client process that dies with its test.
struct Client(Child);

impl Client {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn stop_a_client(test: &str) {
    let fleet = Fleet::start(3, Kind::Valkey);
    let dir = tempfile::tempdir().unwrap();
    let client = again(module_path!(), test)
        .env(URLS, fleet.urls().join(","))
        .env(DIR, dir.path())
        .spawn();
    let mut client = Client(client.unwrap());
    let deadline = Instant::now() + HANG;
    while !dir.path().join("started").exists() {
        assert!(Instant::now() < deadline, "it does not start");
        std::thread::sleep(ms(5));
    }
    for pause in [500, 520, 700, 1_000, 1_500, 2_100, 3_000, 600, 800, 550] {
        std::thread::sleep(ms(pause % 97 + 100));
        client.signal(Signal::STOP);
        std::thread::sleep(ms(pause));
        client.signal(Signal::CONT);
    }
    std::thread::sleep(ms(300));
    fs::write(dir.path().join("stop"), "").unwrap();
    assert!(client.0.wait().unwrap().success());
    let errors = fs::read_to_string(dir.path().join("errors")).unwrap();
    assert!(errors.is_empty(), "{errors}");
    let done = fs::read_to_string(dir.path().join("done")).unwrap();
    assert!(done.parse::<usize>().unwrap() > 500, "{done}");
    assert_eq!(fleet.leftover_locks_after(SOON, "quorate"), [""; 0]);
}

#[test]
fn a_stopped_client_with_one_thread_calls_no_node_late() {
    if !was_client(runtime::Builder::new_current_thread()) {
        stop_a_client("a_stopped_client_with_one_thread_calls_no_node_late");
    }
}

#[test]
fn a_stopped_client_with_many_threads_calls_no_node_late() {
    let mut many = runtime::Builder::new_multi_thread();
    many.worker_threads(4);
    if !was_client(many) {
        stop_a_client("a_stopped_client_with_many_threads_calls_no_node_late");
    }
}

// ---- a node that cannot keep up ------------------------------------------------------------

/// The memory that this process uses.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// The same load on the same servers, through proxies of its own that are never throttled. It shows the cost of a busy
/// machine, which both loads share because they have equally many tasks. It has a runtime of its own, so that only the
/// machine connects the two.
struct Control {
    load: Load,
    runtime: runtime::Runtime,
    _proxies: Vec<Proxy>,
}

impl Control {
    async fn start(fleet: &Fleet) -> Self {
        let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
        let urls = proxies.iter().map(|proxy| proxy.url().to_owned()).collect();
        let mut runtime = runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        let started = async {
            let quorum = connect(builder().key_prefix("control"), urls).await;
            Load::start(&quorum, EACH)
        };
        Self {
            load: runtime.spawn(started).await.unwrap(),
            runtime,
            _proxies: proxies,
        }
    }

    async fn stop(self) -> Vec<String> {
        let errors = self.load.stop().await;
        self.runtime.shutdown_background();
        errors
    }
}

/// The node answers, but ever later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_throttled_node_costs_no_memory_and_no_time() {
    // A majority and one more keep up, so a short stall of one of them costs nothing.
    let fleet = Fleet::start(5, Kind::Redis);
    let machine = Stalls::watch();
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    let urls = proxies.iter().map(|proxy| proxy.url().to_owned()).collect();
    let quorum = connect(builder(), urls).await;
    let control = Control::start(&fleet).await;
    let load = Load::start(&quorum, EACH);
    sleep(ms(1_000)).await;
    load.p99();
    control.load.p99();
    sleep(ms(2_000)).await;
    let ((before, well), (beside_before, _)) = (load.p99(), control.load.p99());
    // A lock and its release take more than 200 bytes in each direction. This is less than a fifth of what the load
    // needs.
    let a_second = u32::try_from(before / 2).unwrap();
    proxies[0].rate(a_second * 40);
    // The sockets fill up first.
    let (mut memory, mut throttled, mut beside, mut late) = (0, 0, 0, Vec::new());
    let (mut stalled, mut samples) = (0, 0);
    for second in 0..12 {
        for _ in 0..100 {
            sleep(ms(10)).await;
            samples += 1;
            let state = &quorum.nodes()[0].state;
            stalled += usize::from(matches!(state, NodeState::Stalled(_)));
        }
        let ((done, p99), (others, of_others)) = (load.p99(), control.load.p99());
        throttled += done;
        beside += others;
        // Three times the cost of the machine, its longest stall, and 50 ms for noise. A second is too long on any
        // machine.
        let bound = of_others.max(well) * 3 + machine.longest() + ms(50);
        if second > 1 && p99 >= bound.min(ms(1_000)) {
            late.push(format!(
                "{second}: p99 {p99:?}, of the control {of_others:?}"
            ));
        }
        if second == 2 {
            memory = resident();
        }
        println!(
            "{second}: {done} locks, p99 {p99:?}, beside {others}, {of_others:?}; stalled {stalled} of {samples}, {} kB",
            resident() >> 10
        );
    }
    let grown = resident().saturating_sub(memory);
    let errors = [load.stop().await, control.stop().await].concat();
    println!(
        "before {before} in 2 s beside {beside_before}; throttled {throttled} in 12 s beside {beside}; {grown} bytes"
    );
    assert!(errors.is_empty(), "{} errors: {}", errors.len(), errors[0]);
    // The load keeps at least two fifths of its throughput, relative to the control's.
    assert!(
        throttled * beside_before * 5 > before * beside * 2,
        "{throttled} beside {beside} in 12 s, {before} beside {beside_before} in 2 s"
    );
    // A client that harms the servers would harm the control too.
    assert!(
        beside * 2 > beside_before * 3,
        "{beside} in 12 s, {beside_before} in 2 s"
    );
    assert!(grown < 8 << 20, "{grown} bytes");
    assert!(
        stalled * 2 > samples,
        "shown as stalled {stalled} of {samples} times"
    );
    assert!(late.is_empty(), "{late:#?}, before {well:?}");
    proxies[0].rate(0);
    let deadline = Instant::now() + HANG;
    while quorum.nodes()[0].state != NodeState::Voting {
        assert!(Instant::now() < deadline, "{}", quorum.nodes()[0]);
        sleep(ms(10)).await;
    }
    // The throttled node still reads what was sent to it. This is far below the ttl of 10 s.
    assert_eq!(fleet.leftover_locks_after(SOON, "quorate"), [""; 0]);
}

/// Asks for this many locks while the servers stand still, after `happen`. Returns the time until all are granted.
async fn all_at_once(
    fleet: &Fleet,
    quorum: &Quorum,
    n: usize,
    happen: impl Fn(&Server),
) -> Duration {
    fleet.iter().for_each(happen);
    fleet.iter().for_each(Server::sigstop);
    let start = Instant::now();
    let asked: Vec<_> = (0..n)
        .map(|i| {
            let mutex = quorum.mutex(format!("name {i}")).ttl(HANG);
            tokio::spawn(mutex.try_lock())
        })
        .collect();
    // By now the engine has all of them.
    assert!(
        quorum
            .mutex("last")
            .wait_timeout(ms(1))
            .lock()
            .now_or_never()
            .is_none()
    );
    sleep(ms(1_500)).await;
    fleet.iter().for_each(Server::sigcont);
    let mut granted = Vec::new();
    for answer in join_all(asked).await {
        granted.push(answer.unwrap().unwrap().unwrap());
    }
    let took = start.elapsed();
    drop(granted);
    assert_eq!(
        fleet.leftover_locks_after(HANG, "quorate:@mutex:name"),
        [""; 0]
    );
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_of_scripts_or_admission_with_thousands_under_way_costs_little() {
    const MANY: usize = 60_000;
    let fleet = Fleet::start(3, Kind::Redis);
    // This test is not about nodes that answer late.
    let timeout = Duration::from_secs(25);
    let quorum = connect(Quorum::builder().node_timeout(timeout), fleet.urls()).await;
    let bystander = quorum
        .mutex("bystander")
        .ttl(Duration::from_secs(20))
        .lock()
        .await
        .unwrap();
    let well = all_at_once(&fleet, &quorum, MANY, |_| {}).await;
    let flushed = all_at_once(&fleet, &quorum, MANY, |server| {
        drop(server.cmd(&["SCRIPT", "FLUSH"]));
    });
    let flushed = flushed.await;
    let closed = all_at_once(&fleet, &quorum, MANY, |server| {
        drop(server.cmd(&["DEL", "quorate:open"]));
    });
    let closed = closed.await;
    println!("{well:?} without, {flushed:?} with SCRIPT FLUSH, {closed:?} with DEL open");
    // In the worst case everything is sent a second time. The third part and the 500 ms are for a busy machine.
    assert!(
        flushed < well * 3 + ms(500),
        "{flushed:?} instead of {well:?}"
    );
    assert!(
        closed < well * 3 + ms(500),
        "{closed:?} instead of {well:?}"
    );
    assert!(bystander.is_valid());
    bystander.release().await.unwrap();
}

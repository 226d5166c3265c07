//! Writers of a read-write lock queue for their turn, readers come in between, and safety does not depend on the turn
//! (protocol §4).

use super::*;
use crate::support::{Kind, ServerOptions};
use quorate::RwLock;

const TURN: &str = "quorate:@mutex:@rwlock-turn:a";
const LINE: &str = "quorate:@mutex-line:@rwlock-turn:a";
/// A writer that vanished with its turn delays the others for this long: the longest rest plus the node timeout.
const VANISHED: Duration = Duration::from_millis(100 + 500);
/// The intent of such a writer keeps readers out for this long.
const INTENT: Duration = Duration::from_millis(3 * (100 + 500));

fn lock(quorum: &Quorum) -> RwLock {
    quorum.rwlock(NAME)
}

fn number(server: &Server, words: &[&str]) -> usize {
    usize::from_redis_value(server.cmd(words)).unwrap()
}

/// Waits until one writer has the turn on every node, and `behind` writers queue behind it.
async fn queued(fleet: &Fleet, behind: usize) {
    let so = |server: &Server| {
        number(server, &["EXISTS", TURN]) == 1 && number(server, &["ZCARD", LINE]) == behind
    };
    let what = format!("one has the turn, and {behind} wait for it");
    eventually(&what, || fleet.iter().all(so)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_are_served_in_order_across_processes() {
    const WAITERS: usize = 30;
    let fleet = Fleet::mixed(3);
    let clients = [
        connect(builder(fleet.urls())).await,
        connect(builder(fleet.urls())).await,
    ];
    let held = lock(&clients[0]).write().await.unwrap();
    let served = Served::default();
    let mut waiters = Vec::new();
    for index in 0..WAITERS {
        let writes = lock(&clients[index % 2]).write();
        waiters.push(served.when_locked(index, writes, ms(3)));
        queued(&fleet, index).await;
    }
    held.release().await.unwrap();
    all_end(waiters).await;
    served.in_order::<quorate::Mutex>(WAITERS);
    nothing_is_left(&fleet);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_that_is_not_contended_asks_nobody_about_a_turn() {
    let fleet = Fleet::mixed(3);
    let client = connect(builder(fleet.urls())).await;
    // A script that is not known yet is sent a second time, so this loads the scripts.
    lock(&client)
        .write()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let scripts = || -> Vec<u64> { fleet.iter().map(|it| calls(it, "evalsha")).collect() };
    let before = scripts();
    for _ in 0..10 {
        let lease = lock(&client).write().await.unwrap();
        lease.release().await.unwrap();
    }
    let late = || {
        let pairs = scripts().into_iter().zip(&before);
        pairs
            .map(|(now, before)| now - before)
            .collect::<Vec<u64>>()
    };
    // The third node may answer after the majority.
    eventually("one WRITE and one RELEASE each", || late() == [20; 3]).await;
    for server in fleet.iter() {
        let counters = format!("{:?}", server.cmd(&["HKEYS", "quorate:c0"]));
        assert!(!counters.contains("turn"), "{counters}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_writers_leave_and_the_others_and_readers_are_served() {
    let fleet = Fleet::mixed(3);
    let client = connect(builder(fleet.urls())).await;
    let held = lock(&client).read().await.unwrap();
    let served = Served::default();
    let (mut waiters, mut dropped) = (Vec::new(), Vec::new());
    for index in 0..6 {
        dropped.push(tokio::spawn(lock(&client).write()));
        queued(&fleet, 2 * index).await;
        waiters.push(served.when_locked(index, lock(&client).write(), ms(2)));
        queued(&fleet, 2 * index + 1).await;
    }
    // The first of them has the turn.
    dropped.iter().for_each(JoinHandle::abort);
    queued(&fleet, 5).await;
    assert_eq!(served.count(), 0, "it is read");
    held.release().await.unwrap();
    all_end(waiters).await;
    served.in_order::<quorate::Mutex>(6);

    let held = lock(&client).read().await.unwrap();
    let writers: Vec<_> = (0..3)
        .map(|_| tokio::spawn(lock(&client).write()))
        .collect();
    queued(&fleet, 2).await;
    writers.iter().for_each(JoinHandle::abort);
    let start = Instant::now();
    let reader = timeout(PATIENCE, lock(&client).read()).await;
    drop(reader.expect("nobody waits to write").unwrap());
    assert!(start.elapsed() < INTENT, "{:?}", start.elapsed());
    held.release().await.unwrap();
    nothing_is_left(&fleet);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_killed_with_its_turn_costs_the_time_of_its_turn() {
    let fleet = Fleet::mixed(3);
    let client = connect(builder(fleet.urls())).await;
    let held = lock(&client).read().await.unwrap();
    let mut process = Waiter::writer(&fleet);
    queued(&fleet, 0).await;
    let served = Served::default();
    let waiter = served.when_locked(0, lock(&client).write(), ms(1));
    queued(&fleet, 1).await;
    process.kill9();
    let start = Instant::now();
    held.release().await.unwrap();
    all_end([waiter]).await;
    let took = start.elapsed();
    println!("it cost {took:?}");
    assert!(took < VANISHED + MACHINE, "{took:?}");
    nothing_is_left(&fleet);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_come_in_between_writers_that_queue() {
    const WRITERS: usize = 8;
    const READS: usize = 20;
    let fleet = Fleet::mixed(3);
    let client = connect(builder(fleet.urls())).await;
    let other = connect(builder(fleet.urls())).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writes = Arc::new(Shared::new(0_u32));
    let writers: Vec<_> = (0..WRITERS)
        .map(|n| {
            let lock = lock([&client, &other][n % 2]);
            let (stop, writes) = (Arc::clone(&stop), Arc::clone(&writes));
            tokio::spawn(async move {
                while !stop.load(SeqCst) {
                    let lease = lock.write().await.unwrap();
                    *writes.lock().unwrap() += 1;
                    sleep(ms(5)).await;
                    lease.release().await.unwrap();
                }
            })
        })
        .collect();
    queued(&fleet, WRITERS - 2).await;
    let mut between = Vec::new();
    for n in 0..READS {
        let before = *writes.lock().unwrap();
        let lease = timeout(PATIENCE, lock([&client, &other][n % 2]).read()).await;
        between.push(*writes.lock().unwrap() - before);
        lease.expect("in time").unwrap().release().await.unwrap();
    }
    stop.store(true, SeqCst);
    all_end(writers).await;
    println!("writers before each reader: {between:?}");
    between.sort_unstable();
    assert!(between[READS / 2] <= 3, "{between:?}");
    assert!(*between.last().unwrap() <= WRITERS as u32, "{between:?}");
    nothing_is_left(&fleet);
}

/// Servers that may not push, and a user without rights to the keys of the turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_get_in_without_pushes_and_without_the_keys_of_the_turn() {
    const WAITERS: usize = 4;
    let names = "~quorate:[^@]* ~quorate:@*: ~quorate:@rwlock* ~quorate:@mutex:own*";
    for user in [
        "locker on >secret ~* &* +@all -ssubscribe".to_owned(),
        format!("locker on >secret {names} &* +@all"),
    ] {
        let fleet = Fleet::start_with(3, ServerOptions::new(Kind::Redis).acl(&user));
        let urls = fleet.iter().map(|it| it.url_with("locker", "secret"));
        let client = connect(builder(urls)).await;
        let held = lock(&client).write().await.unwrap();
        let served = Served::default();
        let waiters: Vec<_> = (0..WAITERS)
            .map(|index| served.when_locked(index, lock(&client).write(), ms(5)))
            .collect();
        sleep(ms(300)).await;
        assert_eq!(served.count(), 0);
        let start = Instant::now();
        held.release().await.unwrap();
        all_end(waiters).await;
        println!("{WAITERS} writers in {:?}: {user}", start.elapsed());
        assert_eq!(served.count(), WAITERS);
        nothing_is_left(&fleet);
    }
}

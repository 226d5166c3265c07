//! A hand-over takes two pushes on each node, and nobody polls.

use super::*;
use quorate::Mutex;

fn each(fleet: &Fleet, command: &str) -> Vec<u64> {
    fleet.iter().map(|server| calls(server, command)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_costs_two_pushes_on_each_node() {
    const WAITERS: usize = 60;
    let fleet = Fleet::mixed(3);
    let client = connect(builder(fleet.urls())).await;
    let other = connect(builder(fleet.urls())).await;
    let held = Mutex::of(&client, NAME).lock().await.unwrap();
    let served = Served::default();
    let mut waiters = Vec::new();
    for index in 0..WAITERS {
        let who = [&client, &other][index % 2];
        waiters.push(served.wait(index, &Mutex::of(who, NAME), ms(5)));
        registered::<Mutex>(&fleet, index + 1).await;
    }
    let before = each(&fleet, "spublish");
    held.release().await.unwrap();
    all_end(waiters).await;
    served.in_order::<Mutex>(WAITERS);
    for (after, before) in each(&fleet, "spublish").iter().zip(before) {
        let pushes = after - before;
        println!("{pushes} pushes for {WAITERS} hand-overs");
        assert!(pushes <= 2 * WAITERS as u64, "{pushes}");
        assert!(
            pushes >= WAITERS as u64 / 2,
            "they are handed over: {pushes}"
        );
    }
    nothing_is_left(&fleet);
}

/// A waiter that has only just come is not told that it is next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_to_a_new_waiter_costs_one_push_on_each_node() {
    const WAITERS: usize = 8;
    const TRIES: usize = 10;
    let fleet = Fleet::mixed(3);
    let client = connect(builder(fleet.urls())).await;
    let mut clients = Vec::new();
    for _ in 0..WAITERS {
        clients.push(connect(builder(fleet.urls())).await);
    }
    for _ in 0..TRIES {
        let held = Mutex::of(&client, NAME).lock().await.unwrap();
        let before = each(&fleet, "spublish");
        let start = Instant::now();
        let waiters: Vec<_> = clients
            .iter()
            .map(|client| {
                let lock = Mutex::of(client, NAME).lock();
                tokio::spawn(async { lock.await.unwrap().release().await.unwrap() })
            })
            .collect();
        registered::<Mutex>(&fleet, WAITERS).await;
        let term = shortest_term::<Mutex>(&fleet);
        held.release().await.unwrap();
        all_end(waiters).await;
        if start.elapsed() < term / 4 {
            for (after, before) in each(&fleet, "spublish").iter().zip(before) {
                assert!(after - before <= WAITERS as u64, "{}", after - before);
            }
            return nothing_is_left(&fleet);
        }
    }
    panic!("of {TRIES} lines none was over within a quarter of its shortest term");
}

/// The head asks four times in a term, the others three times in the fleet's longest ttl, and the servers send nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_waiters_ask_rarely_and_servers_push_nothing() {
    const WAITERS: u64 = 100;
    let fleet = Fleet::mixed(3);
    let client = connect(builder(fleet.urls())).await;
    let held = Mutex::of(&client, NAME).lock().await.unwrap();
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| tokio::spawn(Mutex::of(&client, NAME).lock()))
        .collect();
    registered::<Mutex>(&fleet, waiters.len()).await;
    sleep(TERM).await;
    let seconds = 5;
    let (asked, pushed) = (each(&fleet, "hset"), each(&fleet, "spublish"));
    let called = each(&fleet, "evalsha");
    sleep(Duration::from_secs(seconds)).await;
    // The heartbeats of a head, one of each other waiter, because they lie on a grid, and half as many again.
    let most = (seconds * 4 + WAITERS) * 3 / 2;
    for (now, before) in each(&fleet, "hset").iter().zip(asked) {
        println!("{} beats in {seconds} s", now - before);
        assert!(now - before <= most, "{}", now - before);
    }
    // Heartbeats that are due together travel together.
    for (now, before) in each(&fleet, "evalsha").iter().zip(called) {
        println!("{} calls in {seconds} s", now - before);
        assert!(now - before <= seconds * 14, "{}", now - before);
    }
    assert_eq!(each(&fleet, "spublish"), pushed, "nobody is told anything");
    for waiter in &waiters {
        assert!(!waiter.is_finished());
        waiter.abort();
    }
    held.release().await.unwrap();
    nothing_is_left(&fleet);
}

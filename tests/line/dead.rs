//! One who died in line costs nothing, and one who vanished its first term.

use super::*;
use crate::support::Proxy;

/// A claim of 50 ms, and what it takes to ask when it is over.
const CALL: Duration = Duration::from_millis(100);

/// A holder, a process behind it, and one of ours behind that.
struct Behind {
    fleet: Fleet,
    client: Quorum,
    held: quorate::Lease,
    process: Waiter,
}

impl Behind {
    async fn start() -> Self {
        let fleet = Fleet::mixed(3);
        let client = connect(builder(fleet.urls())).await;
        let held = client.mutex(NAME).lock().await.unwrap();
        let process = Waiter::start(&fleet);
        registered(&fleet, 1).await;
        Self {
            fleet,
            client,
            held,
            process,
        }
    }

    /// This becomes of the process while one waits behind it, and the lock is released `after` that: how long that one waits.
    async fn cost(mut self, happens: impl FnOnce(&mut Waiter), after: Duration) -> Duration {
        let served = Served::default();
        let waiter = served.wait(0, &self.client.mutex(NAME), ms(1));
        registered(&self.fleet, 2).await;
        happens(&mut self.process);
        sleep(after).await;
        let start = Instant::now();
        self.held.release().await.unwrap();
        all_end([waiter]).await;
        let took = start.elapsed();
        nothing_is_left(&self.fleet);
        took
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_was_killed_costs_nothing() {
    let all = Behind::start().await;
    let took = all.cost(Waiter::kill9, Duration::ZERO).await;
    // Far below its ttl; on a quiet machine it is two round trips.
    assert!(took < MACHINE, "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_vanished_costs_its_first_term_at_most() {
    // Its connections stay open: what is said to it is heard by its kernel.
    let all = Behind::start().await;
    let took = all.cost(|process| process.sigstop(), Duration::ZERO).await;
    assert!(took < TERM + MACHINE, "{took:?}");
}

/// All of a process that vanished: the first costs its first term, each of the others what it takes to call it. Who
/// stands behind them is told when to ask, and not the second, which is gone too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_vanished_together_cost_one_first_term() {
    const VANISHED: usize = 8;
    let fleet = Fleet::mixed(3);
    let client = connect(builder(fleet.urls())).await;
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    let urls = proxies.iter().map(Proxy::url);
    let host = connect(builder(urls)).await;
    let held = client.mutex(NAME).lock().await.unwrap();
    let vanished: Vec<_> = (0..VANISHED)
        .map(|_| tokio::spawn(host.mutex(NAME).lock()))
        .collect();
    registered(&fleet, VANISHED).await;
    let served = Served::default();
    let waiter = served.wait(0, &client.mutex(NAME), ms(1));
    registered(&fleet, VANISHED + 1).await;
    for proxy in &proxies {
        proxy.blackhole(true);
    }
    let start = Instant::now();
    held.release().await.unwrap();
    all_end([waiter]).await;
    let took = start.elapsed();
    println!("{VANISHED} who vanished cost {took:?}");
    assert!(took < TERM + VANISHED as u32 * CALL + MACHINE, "{took:?}");
    for waiter in vanished {
        waiter.abort();
    }
    for proxy in &proxies {
        proxy.heal();
    }
    nothing_is_left(&fleet);
}

/// The same where it has been silent for long: it is called, and not handed over to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_has_been_silent_is_only_called() {
    let all = Behind::start().await;
    let took = all.cost(|process| process.sigstop(), TERM).await;
    assert!(took < MACHINE, "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_is_not_hindered_by_the_dead() {
    let mut killed = Behind::start().await;
    killed.process.kill9();
    killed.held.release().await.unwrap();
    let tried = killed.client.mutex(NAME).try_lock().await.unwrap();
    assert!(tried.is_some(), "nobody who lives waits");
    drop(tried);
    nothing_is_left(&killed.fleet);

    let vanished = Behind::start().await;
    vanished.process.sigstop();
    vanished.held.release().await.unwrap();
    let start = Instant::now();
    let mutex = vanished.client.mutex(NAME);
    while mutex.try_lock().await.unwrap().is_none() {
        assert!(start.elapsed() < TERM + MACHINE, "{:?}", start.elapsed());
        sleep(ms(5)).await;
    }
    nothing_is_left(&vanished.fleet);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_overtakes_nobody_who_lives() {
    const WAITERS: usize = 30;
    let fleet = Fleet::mixed(3);
    let client = connect(builder(fleet.urls())).await;
    let trier = connect(builder(fleet.urls())).await;
    let held = client.mutex(NAME).lock().await.unwrap();
    let served = Served::default();
    let mut waiters = Vec::new();
    for index in 0..WAITERS {
        waiters.push(served.wait(index, &client.mutex(NAME), ms(5)));
        registered(&fleet, index + 1).await;
    }
    held.release().await.unwrap();
    let (mutex, mut tries) = (trier.mutex(NAME), 0);
    loop {
        let tried = mutex.try_lock().await.unwrap();
        // Looked at after: who is served last has left the line by then.
        if tried.is_some() {
            assert_eq!(served.count(), WAITERS, "it overtook");
            break;
        }
        tries += 1;
    }
    assert!(tries > 10, "{tries}");
    all_end(waiters).await;
    served.in_order(WAITERS);
    nothing_is_left(&fleet);
}

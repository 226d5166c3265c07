//! A waiter that died in the queue costs nothing, and a waiter that vanished costs its first term.

use super::*;
use crate::support::{Proxy, Stalls};
use quorate::Mutex;

on_both! {
    threads:
        a_head_that_was_killed_costs_nothing,
        a_head_that_vanished_costs_its_first_term_at_most,
        a_try_succeeds_despite_dead_waiters,
        a_try_overtakes_no_live_waiter;
}

/// The longest claim with this S, and the time to ask when it is over. A claim is 4 round trips, where S is 20 or a
/// second.
fn call(term: Duration) -> Duration {
    term / 5 + ms(50)
}

/// A holder, a process that waits behind it, and a waiter of this process behind that.
struct Behind {
    fleet: Fleet,
    client: Quorum,
    held: quorate::Lease,
    process: Waiter,
}

impl Behind {
    async fn start<E: Exclusive>() -> Self {
        let fleet = Fleet::mixed(3);
        let client = connect(builder(fleet.urls())).await;
        let held = E::of(&client, NAME).lock().await.unwrap();
        let process = Waiter::start::<E>(&fleet);
        registered::<E>(&fleet, 1).await;
        Self {
            fleet,
            client,
            held,
            process,
        }
    }

    /// Something happens to the process while our waiter stands behind it, and the lock is released `after` times
    /// S later. Returns how long our waiter waited, and S.
    async fn cost<E: Exclusive>(
        mut self,
        happens: impl FnOnce(&mut Waiter),
        after: u32,
    ) -> (Duration, Duration) {
        let served = Served::default();
        let waiter = served.wait(0, &E::of(&self.client, NAME), ms(1));
        registered::<E>(&self.fleet, 2).await;
        let term = longest_term::<E>(&self.fleet);
        happens(&mut self.process);
        sleep(term * after).await;
        let start = Instant::now();
        self.held.release().await.unwrap();
        all_end([waiter]).await;
        let took = start.elapsed();
        if E::WIDTH > 1 {
            // The waiter behind it may have been served first. The place of the process ends when the next caller asks,
            // after its first term. That begins on each node when the node calls it, which may be on one node as late
            // as with the release of that waiter.
            sleep(term).await;
            let deadline = Instant::now() + term + MACHINE;
            loop {
                let next = E::of(&self.client, NAME).try_lock().await.unwrap();
                if let Some(next) = next {
                    next.release().await.unwrap();
                    if self.fleet.leftover_locks(PREFIX).is_empty() {
                        break;
                    }
                }
                assert!(Instant::now() < deadline, "it stands in nobody's way");
                sleep(ms(50)).await;
            }
        }
        nothing_is_left(&self.fleet);
        (took, term)
    }
}

async fn a_head_that_was_killed_costs_nothing<E: Exclusive>() {
    let all = Behind::start::<E>().await;
    // A monitoring tool does the same. It hears all messages, but is not a waiter.
    let monitors: Vec<_> = all.fleet.iter().map(monitor).collect();
    let machine = Stalls::watch();
    let (took, term) = all.cost::<E>(Waiter::kill9, 0).await;
    // This is far below the ttl and the first term. On a quiet machine it takes two round trips.
    let most = term - ms(200) + machine.longest();
    assert!(took < most, "{took:?}, with a term of {term:?}");
    drop(monitors);
}

/// A monitoring tool that listens to everything. It is not a waiter, although it hears every message.
fn monitor(server: &Server) -> redis::Connection {
    let mut connection = server.conn();
    let words = redis::cmd("PSUBSCRIBE").arg("*").get_packed_command();
    connection.send_packed_command(&words).unwrap();
    connection.recv_response().unwrap();
    connection
}

async fn a_head_that_vanished_costs_its_first_term_at_most<E: Exclusive>() {
    // Its connections stay open, so its kernel accepts everything that is sent to it.
    let all = Behind::start::<E>().await;
    let (took, term) = all.cost::<E>(|process| process.sigstop(), 0).await;
    assert!(took < term + MACHINE, "{took:?}, with a term of {term:?}");
}

/// All waiters of a process vanish. The first costs its first term, and each of the others costs the time to call it.
/// The waiter behind them is told when to ask, not the second one, which has vanished too. (This is for the mutex
/// alone, because each of them costs a semaphore a first term.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_waiters_that_vanish_together_cost_one_first_term() {
    const VANISHED: usize = 8;
    let fleet = Fleet::mixed(3);
    let client = connect(builder(fleet.urls())).await;
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    let urls = proxies.iter().map(Proxy::url);
    let host = connect(builder(urls)).await;
    let held = Mutex::of(&client, NAME).lock().await.unwrap();
    let vanished: Vec<_> = (0..VANISHED)
        .map(|_| tokio::spawn(Mutex::of(&host, NAME).lock()))
        .collect();
    registered::<Mutex>(&fleet, VANISHED).await;
    let served = Served::default();
    let waiter = served.wait(0, &Mutex::of(&client, NAME), ms(1));
    registered::<Mutex>(&fleet, VANISHED + 1).await;
    let term = longest_term::<Mutex>(&fleet);
    for proxy in &proxies {
        proxy.blackhole(true);
    }
    let start = Instant::now();
    held.release().await.unwrap();
    all_end([waiter]).await;
    let took = start.elapsed();
    println!("{VANISHED} who vanished cost {took:?}");
    let most = term + VANISHED as u32 * call(term) + MACHINE;
    assert!(took < most, "{took:?}, with a term of {term:?}");
    for waiter in vanished {
        waiter.abort();
    }
    for proxy in &proxies {
        proxy.heal();
    }
    nothing_is_left(&fleet);
}

/// The same for a waiter that has been silent for long: it is called, and the lock is not handed to it. (This is for
/// the mutex alone, because a semaphore gives every waiter a first term to come.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_has_been_silent_is_only_called() {
    let all = Behind::start::<Mutex>().await;
    let (took, term) = all.cost::<Mutex>(|process| process.sigstop(), 1).await;
    assert!(
        took < call(term) + MACHINE,
        "{took:?}, with a term of {term:?}"
    );
}

async fn a_try_succeeds_despite_dead_waiters<E: Exclusive>() {
    let mut killed = Behind::start::<E>().await;
    killed.process.kill9();
    killed.held.release().await.unwrap();
    let tried = E::of(&killed.client, NAME).try_lock().await.unwrap();
    assert!(tried.is_some(), "nobody who lives waits");
    drop(tried);
    nothing_is_left(&killed.fleet);

    let vanished = Behind::start::<E>().await;
    vanished.process.sigstop();
    let term = longest_term::<E>(&vanished.fleet);
    vanished.held.release().await.unwrap();
    let start = Instant::now();
    let mutex = E::of(&vanished.client, NAME);
    while mutex.try_lock().await.unwrap().is_none() {
        let took = start.elapsed();
        assert!(took < term + MACHINE, "{took:?}, with a term of {term:?}");
        sleep(ms(5)).await;
    }
    nothing_is_left(&vanished.fleet);
}

async fn a_try_overtakes_no_live_waiter<E: Exclusive>() {
    const WAITERS: usize = 30;
    let fleet = Fleet::mixed(3);
    let client = connect(builder(fleet.urls())).await;
    let trier = connect(builder(fleet.urls())).await;
    let held = E::of(&client, NAME).lock().await.unwrap();
    let served = Served::default();
    let mut waiters = Vec::new();
    for index in 0..WAITERS {
        waiters.push(served.wait(index, &E::of(&client, NAME), ms(5)));
        registered::<E>(&fleet, index + 1).await;
    }
    held.release().await.unwrap();
    let (mutex, mut tries) = (E::of(&trier, NAME), 0);
    loop {
        let tried = mutex.try_lock().await.unwrap();
        // The count is read after the attempt: the last waiter has left the queue by then.
        if tried.is_some() {
            assert_eq!(served.count(), WAITERS, "it overtook");
            break;
        }
        tries += 1;
    }
    assert!(tries > 10, "{tries}");
    all_end(waiters).await;
    served.in_order::<E>(WAITERS);
    nothing_is_left(&fleet);
}

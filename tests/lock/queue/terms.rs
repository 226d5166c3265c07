//! Settings of each waiter, and servers that may not push.

use super::*;
use crate::support::{Kind, Proxy, ServerOptions};
use quorate::Mutex;
use quorate::Renewal;

on_both! {
    threads:
        without_renewal_it_is_held_for_the_whole_ttl,
        short_and_long_ttls_wait_in_one_queue,
        servers_that_may_not_push_are_asked_in_order;
}

async fn short_and_long_ttls_wait_in_one_queue<E: Exclusive>() {
    const WAITERS: usize = 20;
    let fleet = Fleet::mixed(3);
    let client = connect(builder(fleet.urls())).await;
    let held = E::of(&client, NAME).ttl(ms(30_000)).lock().await.unwrap();
    let served = Served::default();
    let mut waiters = Vec::new();
    for index in 0..WAITERS {
        let ttl = [ms(30_000), ms(1_000)][index % 2];
        waiters.push(served.wait(index, &E::of(&client, NAME).ttl(ttl), ms(100)));
        registered::<E>(&fleet, index + 1).await;
    }
    // This is longer than the short waits last.
    sleep(ms(1_500)).await;
    registered::<E>(&fleet, WAITERS).await;
    let term = longest_term::<E>(&fleet);
    held.release().await.unwrap();
    all_end(waiters).await;
    let longest = served.in_order::<E>(WAITERS);
    assert!(
        longest < term + MACHINE,
        "free for {longest:?}, with a term of {term:?}"
    );
    nothing_is_left(&fleet);
}

/// Two clients in turn, one of them 50 ms away: neither gets the lock twice while the other waits. (This is for the
/// mutex alone, because either of the first two waiters of a semaphore may be served first.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_near_waiter_and_a_far_one_take_turns() {
    const ROUNDS: usize = 6;
    let fleet = Fleet::mixed(3);
    let near = connect(builder(fleet.urls())).await;
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    let far = connect(builder(proxies.iter().map(Proxy::url))).await;
    for proxy in &proxies {
        proxy.delay(ms(25));
    }
    let served = Served::default();
    let mut holder = Mutex::of(&near, NAME).lock().await.unwrap();
    for round in 0..ROUNDS {
        let (first, then) = [(&far, &near), (&near, &far)][round % 2];
        let one = served.wait(2 * round, &Mutex::of(first, NAME), ms(30));
        registered::<Mutex>(&fleet, 1).await;
        let two = served.wait(2 * round + 1, &Mutex::of(then, NAME), ms(30));
        registered::<Mutex>(&fleet, 2).await;
        holder.release().await.unwrap();
        all_end([one, two]).await;
        holder = Mutex::of(&near, NAME).lock().await.unwrap();
    }
    holder.release().await.unwrap();
    served.in_order::<Mutex>(2 * ROUNDS);
    let all = served.all.lock().unwrap().clone();
    for pair in all.chunks(2) {
        let gap = pair[1].from.saturating_duration_since(pair[0].until);
        // Two round trips of 50 ms.
        assert!(gap < ms(2 * 50) + MACHINE, "{gap:?}");
    }
    nothing_is_left(&fleet);
}

/// A lock that was handed over for a term is held for the ttl when `lock` returns, because nobody renews it later.
async fn without_renewal_it_is_held_for_the_whole_ttl<E: Exclusive>() {
    let fleet = Fleet::mixed(3);
    let client = connect(builder(fleet.urls())).await;
    let held = E::of(&client, NAME).lock().await.unwrap();
    let (ttl, delay) = (ms(20_000), ms(5_000));
    let mutex = E::of(&client, NAME).ttl(ttl).lock_delay(delay);
    let waiter = tokio::spawn(mutex.renewal(Renewal::off()).lock());
    registered::<E>(&fleet, 1).await;
    held.release().await.unwrap();
    let lease = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
    let left = lease.validity();
    // This subtracts the drift of 202 ms, and the part of the first term that has passed.
    assert!(left > ttl - TERM - MACHINE && left <= ttl, "{left:?}");
    let kept = fleet.iter().filter(|server| {
        let left = E::kept(server, NAME);
        left > ttl + delay - MACHINE && left <= ttl + delay
    });
    assert!(kept.count() >= 2, "the lock-delay is there too");
    lease.release().await.unwrap();
    nothing_is_left(&fleet);
}

/// A server that may not notify waiters is asked from time to time. The order is kept all the same.
async fn servers_that_may_not_push_are_asked_in_order<E: Exclusive>() {
    const WAITERS: usize = 6;
    for (kind, without) in [(Kind::Redis, "-ssubscribe"), (Kind::Valkey, "-spublish")] {
        let user = format!("locker on >secret ~* &* +@all {without}");
        let fleet = Fleet::start_with(3, ServerOptions::new(kind).acl(&user));
        let urls = fleet.iter().map(|it| it.url_with("locker", "secret"));
        let client = connect(builder(urls)).await;
        let held = E::of(&client, NAME).lock().await.unwrap();
        for node in client.nodes() {
            let right = without.trim_start_matches('-').to_uppercase();
            assert!(node.to_string().contains(&right), "it is noted: {node}");
        }
        let served = Served::default();
        let mut waiters = Vec::new();
        for index in 0..WAITERS {
            waiters.push(served.wait(index, &E::of(&client, NAME), ms(5)));
            registered::<E>(&fleet, index + 1).await;
        }
        let before: Vec<u64> = fleet.iter().map(|it| calls(it, "spublish")).collect();
        let term = longest_term::<E>(&fleet);
        held.release().await.unwrap();
        all_end(waiters).await;
        let longest = served.in_order::<E>(WAITERS);
        // A waiter without notifications asks every S / 4 (protocol §5): two such rests.
        assert!(
            longest < term / 2 + MACHINE,
            "free for {longest:?}, with a term of {term:?}"
        );
        let after: Vec<u64> = fleet.iter().map(|it| calls(it, "spublish")).collect();
        assert_eq!(before, after, "{without}");
        nothing_is_left(&fleet);
    }
}

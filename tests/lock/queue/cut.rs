//! A waiter whose connection breaks keeps its place.

use super::*;
use crate::support::Proxy;

on_both! {
    threads:
        a_briefly_cut_off_waiter_keeps_its_place,
        a_waiter_cut_off_from_a_minority_is_served_in_its_turn,
        a_waiter_that_reaches_only_a_minority_blocks_no_other,
        a_waiter_registered_on_a_minority_only_blocks_no_other,
        thousands_of_cut_off_waiters_register_again_at_once;
}

/// One client that reaches the servers directly, and one that uses proxies.
async fn near_and_far(fleet: &Fleet) -> (Quorum, Vec<Proxy>, Quorum) {
    patient(fleet, NODE_TIMEOUT).await
}

/// The same, with clients that give each server this much time to answer.
async fn patient(fleet: &Fleet, node_timeout: Duration) -> (Quorum, Vec<Proxy>, Quorum) {
    let to = |urls: Vec<&str>| builder(urls).node_timeout(node_timeout);
    let urls = fleet.urls();
    let client = connect(to(urls.iter().map(String::as_str).collect())).await;
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    let far = connect(to(proxies.iter().map(Proxy::url).collect())).await;
    (client, proxies, far)
}

/// A waiter is cut off from all nodes and comes back. The waiter behind it is connected all the time.
async fn a_briefly_cut_off_waiter_keeps_its_place<E: Exclusive>() {
    let fleet = Fleet::mixed(3);
    let (client, proxies, far) = near_and_far(&fleet).await;
    let held = E::of(&client, NAME).lock().await.unwrap();
    let served = Served::default();
    let mut waiters = Vec::new();
    for index in 0..10 {
        let who = [&far, &client][index % 2];
        waiters.push(served.wait(index, &E::of(who, NAME), ms(5)));
        registered::<E>(&fleet, index + 1).await;
    }
    let before: Vec<_> = fleet.iter().map(tickets::<E>).collect();
    for round in 0..3 {
        let asked: Vec<u64> = fleet.iter().map(|server| calls(server, "hset")).collect();
        if round == 2 {
            for server in fleet.iter() {
                for kind in ["normal", "pubsub"] {
                    server.cmd(&["CLIENT", "KILL", "TYPE", kind]);
                }
            }
        } else {
            proxies.iter().for_each(Proxy::cut);
            eventually("it is cut off", || far.health().voting == 0).await;
            proxies.iter().for_each(Proxy::heal);
        }
        let again = |(server, before): (&Server, &u64)| calls(server, "hset") >= before + 5;
        let all_again = || fleet.iter().zip(&asked).all(again);
        eventually("they are registered again", all_again).await;
        registered::<E>(&fleet, 10).await;
        let after: Vec<_> = fleet.iter().map(tickets::<E>).collect();
        assert_eq!(before, after, "round {round}: the same places");
    }
    eventually("all vote", || {
        far.health().voting == 3 && client.health().voting == 3
    })
    .await;
    held.release().await.unwrap();
    all_end(waiters).await;
    served.in_order::<E>(10);
    nothing_is_left(&fleet);
}

/// A hand-over finds that the waiter is gone on one node, and drops it there. The waiter comes back to the same place.
async fn a_waiter_cut_off_from_a_minority_is_served_in_its_turn<E: Exclusive>() {
    let fleet = Fleet::mixed(3);
    let (client, proxies, far) = near_and_far(&fleet).await;
    let held = E::of(&client, NAME).lock().await.unwrap();
    let served = Served::default();
    let mut waiters = Vec::new();
    for index in 0..20 {
        let who = [&client, &far][index % 2];
        waiters.push(served.wait(index, &E::of(who, NAME), ms(20)));
        registered::<E>(&fleet, index + 1).await;
    }
    let term = longest_term::<E>(&fleet);
    held.release().await.unwrap();
    for (round, proxy) in proxies.iter().enumerate() {
        served.reaches(1 + 6 * round).await;
        proxy.cut();
        served.reaches(4 + 6 * round).await;
        proxy.heal();
        eventually("all vote", || far.health().voting == 3).await;
    }
    all_end(waiters).await;
    let longest = served.in_order::<E>(20);
    assert!(
        longest < term + MACHINE,
        "free for {longest:?}, with a term of {term:?}"
    );
    nothing_is_left(&fleet);
}

/// A waiter that can never have the lock keeps nobody from it, neither by what was handed to it nor by its smaller
/// ticket.
async fn a_waiter_that_reaches_only_a_minority_blocks_no_other<E: Exclusive>() {
    let fleet = Fleet::mixed(5);
    let (client, proxies, far) = near_and_far(&fleet).await;
    let held = E::of(&client, NAME).lock().await.unwrap();
    let (served, late) = (Served::default(), Served::default());
    let mut waiters = Vec::new();
    // The first two waiters are among those that are cut off.
    for index in 0..2 {
        waiters.push(late.wait(index, &E::of(&far, NAME), ms(5)));
        registered::<E>(&fleet, index + 1).await;
    }
    for index in 0..4 {
        waiters.push(served.wait(index, &E::of(&client, NAME), ms(5)));
        registered::<E>(&fleet, 2 + index + 1).await;
    }
    for proxy in &proxies[2..] {
        proxy.blackhole(true);
    }
    let term = longest_term::<E>(&fleet);
    let start = Instant::now();
    held.release().await.unwrap();
    served.reaches(4).await;
    // The hand-over to the first waiter ends with its first term, and the second waiter is only called. A semaphore
    // calls both, one after the other, and each has its term.
    let took = start.elapsed();
    assert!(
        took < term * E::WIDTH as u32 + MACHINE,
        "{took:?}, with a term of {term:?}"
    );
    assert_eq!(late.count(), 0);
    eventually("they have left", || {
        fleet
            .iter()
            .take(2)
            .all(|server| line::<E>(server).is_empty())
    })
    .await;
    // Waiters that come later are served after them.
    let held = E::of(&client, NAME).lock().await.unwrap();
    waiters.push(served.wait(4, &E::of(&client, NAME), ms(5)));
    for proxy in &proxies {
        proxy.heal();
    }
    registered::<E>(&fleet, 3).await;
    held.release().await.unwrap();
    all_end(waiters).await;
    served.in_order::<E>(5);
    late.in_order::<E>(2);
    let last = |served: &Served| served.all.lock().unwrap().last().unwrap().until;
    assert!(last(&late) < last(&served), "they keep their places");
    nothing_is_left(&fleet);
}

/// The same where the waiter may ask a majority, of which one node is full and registers nobody.
async fn a_waiter_registered_on_a_minority_only_blocks_no_other<E: Exclusive>() {
    let fleet = Fleet::mixed(5);
    let (client, proxies, far) = near_and_far(&fleet).await;
    let held = E::of(&client, NAME).lock().await.unwrap();
    fleet[2].cmd(&["CONFIG", "SET", "maxmemory", "1"]);
    let (served, late) = (Served::default(), Served::default());
    let stand = async |count: usize| {
        eventually("they stand in line", || {
            let others = fleet.iter().enumerate().filter(|(node, _)| *node != 2);
            others
                .into_iter()
                .all(|(_, server)| line::<E>(server).len() == count)
        })
        .await;
    };
    let mut waiters = vec![late.wait(0, &E::of(&far, NAME), ms(5))];
    stand(1).await;
    for index in 0..4 {
        waiters.push(served.wait(index, &E::of(&client, NAME), ms(5)));
        stand(1 + index + 1).await;
    }
    for proxy in &proxies[3..] {
        proxy.blackhole(true);
    }
    let term = longest_term::<E>(&fleet);
    let start = Instant::now();
    held.release().await.unwrap();
    served.reaches(4).await;
    let took = start.elapsed();
    println!("one who was registered on a minority cost {took:?}");
    assert!(
        took < 2 * term + MACHINE,
        "{took:?}, with a term of {term:?}"
    );
    assert_eq!(late.count(), 0);
    fleet[2].cmd(&["CONFIG", "SET", "maxmemory", "0"]);
    for proxy in &proxies {
        proxy.heal();
    }
    all_end(waiters).await;
    served.in_order::<E>(4);
    late.in_order::<E>(1);
    nothing_is_left(&fleet);
}

/// The many waiters of one client. (This is a debug build, beside other tests. `make bench` has 10,000 in release.)
async fn thousands_of_cut_off_waiters_register_again_at_once<E: Exclusive>() {
    const WAITERS: usize = 2_000;
    let fleet = Fleet::mixed(3);
    // When thousands ask at once on a busy machine an answer takes time, and a waiter that finds no majority is told
    // so.
    let (client, proxies, far) = patient(&fleet, PATIENCE).await;
    let held = E::of(&client, NAME).lock().await.unwrap();
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| tokio::spawn(E::of(&far, NAME).lock()))
        .collect();
    let start = Instant::now();
    registered::<E>(&fleet, WAITERS).await;
    let first = start.elapsed();
    sleep(ms(500)).await;
    let before: Vec<_> = fleet.iter().map(tickets::<E>).collect();
    let asked: Vec<u64> = fleet.iter().map(|server| calls(server, "hset")).collect();
    proxies.iter().for_each(Proxy::cut);
    eventually("it is cut off", || far.health().voting == 0).await;
    proxies.iter().for_each(Proxy::heal);
    eventually("it is back", || far.health().voting == 3).await;
    let start = Instant::now();
    let most = WAITERS as u64;
    let again = |(server, before): (&Server, &u64)| calls(server, "hset") >= before + most;
    eventually("they are registered again", || {
        fleet.iter().zip(&asked).all(again)
    })
    .await;
    // A few waiters had asked when the connections were cut. If the answers take more than half a term, these waiters
    // stand aside.
    eventually("the same places", || {
        fleet.iter().map(tickets::<E>).eq(before.iter().cloned())
    })
    .await;
    let took = start.elapsed();
    // A hand-over to a waiter that is not back yet would cost a term. A busy machine takes as long as for the first time.
    let most = TERM.max(first) + MACHINE;
    assert!(took < most, "{took:?}, at first {first:?}");
    println!("{WAITERS} registered again in {took:?}");
    for waiter in &waiters {
        assert!(!waiter.is_finished());
        waiter.abort();
    }
    held.release().await.unwrap();
    eventually("they have left", || {
        fleet.iter().all(|server| line::<E>(server).is_empty())
    })
    .await;
    nothing_is_left(&fleet);
}

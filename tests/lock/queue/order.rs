//! All waiters are served in the order in which they registered.

use super::*;

on_both! {
    threads:
        a_hundred_are_served_in_order_while_masters_and_a_waiter_die,
        a_master_that_is_back_from_quarantine_changes_no_order;
}

const WAITERS: usize = 100;

async fn a_hundred_are_served_in_order_while_masters_and_a_waiter_die<E: Exclusive>() {
    let fleet = Fleet::mixed(5);
    let ours = || builder(fleet.urls());
    let holder = connect(ours()).await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(connect(ours()).await);
    }
    let held = E::of(&holder, NAME).lock().await.unwrap();
    let served = Served::default();
    let mut waiters = Vec::new();
    let mut process = None;
    for index in 0..WAITERS {
        if index == 50 {
            process = Some(Waiter::start::<E>(&fleet));
            registered::<E>(&fleet, index + 1).await;
        }
        let mutex = E::of(&clients[index % 4], NAME);
        waiters.push(served.wait(index, &mutex, ms(15)));
        registered::<E>(&fleet, waiters.len() + usize::from(process.is_some())).await;
    }
    let term = longest_term::<E>(&fleet);
    held.release().await.unwrap();

    served.reaches(10).await;
    fleet[0].kill9();
    served.reaches(25).await;
    process.unwrap().kill9();
    served.reaches(35).await;
    fleet[1].cmd(&["FLUSHALL"]);
    served.reaches(60).await;
    // It starts without its memory, so it does not vote for longer than all of this takes.
    fleet[0].start_again();
    all_end(waiters).await;

    let longest = served.in_order::<E>(WAITERS);
    assert!(
        longest < term + MACHINE,
        "free for {longest:?}, with a term of {term:?}"
    );
    nothing_is_left(&fleet);
}

/// The restarted node votes again before all waiters are served. Its queue was empty, and that lets nobody overtake.
async fn a_master_that_is_back_from_quarantine_changes_no_order<E: Exclusive>() {
    const WAITERS: usize = 40;
    /// It keeps the lock until the node is back.
    const LONG: usize = 12;
    let fleet = Fleet::mixed(3);
    let ours = || builder(fleet.urls()).max_ttl(ms(2_000));
    let holder = connect(ours()).await;
    let clients = [connect(ours()).await, connect(ours()).await];
    let held = E::of(&holder, NAME).lock().await.unwrap();
    let served = Served::default();
    let is_back = Arc::new(AtomicBool::new(false));
    let mut waiters = Vec::new();
    for index in 0..WAITERS {
        let mutex = E::of(&clients[index % 2], NAME);
        let is_back = Arc::clone(&is_back);
        let work = async move {
            sleep(ms(80)).await;
            while index == LONG && !is_back.load(SeqCst) {
                sleep(ms(5)).await;
            }
        };
        waiters.push(served.hold_during(index, mutex.lock(), work));
        registered::<E>(&fleet, index + 1).await;
    }
    let term = longest_term::<E>(&fleet);
    held.release().await.unwrap();
    served.reaches(3).await;
    fleet[2].restart_empty();
    eventually("it is out", || clients[0].health().voting == 2).await;
    eventually("it is back", || clients[0].health().voting == 3).await;
    assert!(served.count() + 5 < WAITERS, "{}", served.count());
    is_back.store(true, SeqCst);
    all_end(waiters).await;
    let longest = served.in_order::<E>(WAITERS);
    assert!(
        longest < term + MACHINE,
        "free for {longest:?}, with a term of {term:?}"
    );
    nothing_is_left(&fleet);
}

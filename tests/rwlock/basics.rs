//! Read-write locks on in-process nodes. All but one test run on tokio's paused clock, so a slow machine makes no wait
//! longer.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use quorate::{Error, Quorum, Renewal};
use tokio::time::{Instant, sleep, timeout};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Runs a future that must end within half of the default ttl, so not because a lease has expired.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(ms(5_000), future).await.expect("in time")
}

#[tokio::test(start_paused = true)]
async fn many_readers_or_one_writer_hold_the_lock() {
    let quorum = Quorum::in_memory(3);
    let lock = quorum.rwlock("index");
    let one = lock.read().await.unwrap();
    let other = lock.try_read().await.unwrap().unwrap();
    assert_eq!(one.name(), "index");
    assert!(lock.try_write().await.unwrap().is_none());
    one.release().await.unwrap();
    assert!(lock.try_write().await.unwrap().is_none());
    other.release().await.unwrap();
    let writer = lock.try_write().await.unwrap().unwrap();
    assert!(lock.try_read().await.unwrap().is_none());
    assert!(lock.try_write().await.unwrap().is_none());
    writer.release().await.unwrap();
    assert!(lock.try_read().await.unwrap().is_some());
    quorum.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_read_write_lock_does_not_share_its_name_with_a_mutex() {
    let quorum = Quorum::in_memory(3);
    let _writer = quorum.rwlock("a").write().await.unwrap();
    assert!(quorum.mutex("a").try_lock().await.unwrap().is_some());
    assert!(quorum.rwlock("b").try_write().await.unwrap().is_some());
}

// This runs on the real clock. It measures no time, and two readers have different epochs on the paused one.
#[tokio::test]
async fn a_writers_token_grows_and_a_readers_is_an_epoch() {
    let quorum = Quorum::in_memory(5);
    let lock = quorum.rwlock("index");
    let first = lock.read().await.unwrap();
    let second = lock.read().await.unwrap();
    assert!(first.token().as_u64() > 0, "also where nobody has written");
    assert_eq!(first.token(), second.token());
    let before = first.token();
    drop((first, second));
    let mut last = before;
    for _ in 0..20 {
        let writer = lock.write().await.unwrap();
        let token = writer.token();
        assert!(token > last);
        writer.release().await.unwrap();
        let reader = lock.read().await.unwrap();
        assert!(reader.token() >= token);
        last = reader.token();
        reader.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_reader_or_writer_is_woken_by_a_release() {
    let quorum = Quorum::in_memory(3);
    let lock = quorum.rwlock("index");
    for write_first in [false, true] {
        let first = match write_first {
            true => lock.write().await.unwrap(),
            false => lock.read().await.unwrap(),
        };
        let waits = tokio::spawn(match write_first {
            true => futures::FutureExt::boxed(lock.read()),
            false => futures::FutureExt::boxed(lock.write()),
        });
        sleep(ms(700)).await;
        assert!(!waits.is_finished());
        let freed = Instant::now();
        first.release().await.unwrap();
        let second = soon(waits).await.unwrap().unwrap();
        // A waiter that is not told asks every 100 ms.
        assert!(freed.elapsed() < ms(60), "{:?}", freed.elapsed());
        second.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_waits_keeps_new_readers_out_until_it_gives_up() {
    let quorum = Quorum::in_memory(3);
    let lock = quorum.rwlock("index");
    let reader = lock.read().await.unwrap();
    let writer = tokio::spawn(lock.write());
    sleep(ms(50)).await;
    assert!(lock.try_read().await.unwrap().is_none());
    writer.abort();
    let late = soon(lock.clone().wait_timeout(ms(1_000)).read()).await;
    assert!(late.is_ok(), "{late:?}");
    drop(reader);
}

#[tokio::test(start_paused = true)]
async fn a_try_keeps_nobody_out() {
    let quorum = Quorum::in_memory(3);
    let lock = quorum.rwlock("index");
    let _reader = lock.read().await.unwrap();
    assert!(lock.try_write().await.unwrap().is_none());
    assert!(lock.try_read().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_on_time_and_reports_held() {
    let quorum = Quorum::in_memory(3);
    let lock = quorum.rwlock("index").wait_timeout(ms(150));
    let _reader = lock.read().await.unwrap();
    let begun = Instant::now();
    let error = soon(lock.write()).await.unwrap_err();
    assert!(
        matches!(&error, Error::Held(report) if report.to_string().contains("held")),
        "{error:?}"
    );
    // The wait, and 250 ms for a busy machine.
    assert!(
        (ms(140)..ms(150 + 250)).contains(&begun.elapsed()),
        "{:?}",
        begun.elapsed()
    );
    let reader = soon(lock.read()).await;
    assert!(reader.is_ok(), "what it wanted is taken back: {reader:?}");
}

/// Readers come and go all the time, so there is always a reader.
#[tokio::test(start_paused = true)]
async fn a_writer_is_not_kept_waiting_by_readers_that_come_and_go() {
    let quorum = Quorum::in_memory(3);
    let lock = quorum.rwlock("index");
    let over = Arc::new(AtomicBool::new(false));
    let reads = Arc::new(AtomicUsize::new(0));
    let readers: Vec<_> = (0..10)
        .map(|i| {
            let (lock, over, reads) = (lock.clone(), Arc::clone(&over), Arc::clone(&reads));
            tokio::spawn(async move {
                sleep(ms(i)).await;
                while !over.load(SeqCst) {
                    let lease = lock.read().await.unwrap();
                    reads.fetch_add(1, SeqCst);
                    sleep(ms(10)).await;
                    lease.release().await.unwrap();
                }
            })
        })
        .collect();
    sleep(ms(50)).await;
    for _ in 0..5 {
        let begun = Instant::now();
        let before = reads.load(SeqCst);
        let writer = soon(lock.write()).await.unwrap();
        // The readers hold the lock for another 10 ms. The rest is for a busy machine.
        assert!(begun.elapsed() < ms(500), "{:?}", begun.elapsed());
        writer.release().await.unwrap();
        // Readers are not kept waiting by writers either.
        while reads.load(SeqCst) == before {
            soon(sleep(ms(1))).await;
        }
    }
    over.store(true, SeqCst);
    for reader in readers {
        soon(reader).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn readers_get_in_between_writers_that_follow_each_other() {
    let quorum = Quorum::in_memory(3);
    let lock = quorum.rwlock("index");
    let over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|_| {
            let (lock, over) = (lock.clone(), Arc::clone(&over));
            tokio::spawn(async move {
                while !over.load(SeqCst) {
                    let lease = lock.write().await.unwrap();
                    sleep(ms(2)).await;
                    lease.release().await.unwrap();
                }
            })
        })
        .collect();
    sleep(ms(50)).await;
    for _ in 0..5 {
        let begun = Instant::now();
        let reader = soon(lock.read()).await.unwrap();
        // The writers before it hold the lock for 2 ms each. The rest is for a busy machine.
        assert!(begun.elapsed() < ms(1_000), "{:?}", begun.elapsed());
        reader.release().await.unwrap();
    }
    over.store(true, SeqCst);
    for writer in writers {
        soon(writer).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_becomes_a_reader_and_nobody_writes_in_between() {
    let quorum = Quorum::in_memory(3);
    let lock = quorum.rwlock("index");
    let lease = lock.write().await.unwrap();
    let token = lease.token();
    let other = tokio::spawn(lock.write());
    let reads = tokio::spawn(lock.read());
    sleep(ms(50)).await;
    lease.downgrade().await.unwrap();
    let beside = soon(reads).await.unwrap().unwrap();
    assert_eq!((lease.token(), beside.token()), (token, token));
    assert!(!other.is_finished() && lease.is_valid());
    lease.downgrade().await.unwrap();
    lease.extend().await.unwrap();
    beside.release().await.unwrap();
    assert!(!other.is_finished());
    lease.release().await.unwrap();
    let next = soon(other).await.unwrap().unwrap();
    assert!(next.token() > token);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_had_waited_and_becomes_a_reader_keeps_no_reader_out() {
    let quorum = Quorum::in_memory(3);
    let lock = quorum.rwlock("index");
    let reader = lock.read().await.unwrap();
    let writer = tokio::spawn(lock.write());
    sleep(ms(50)).await;
    reader.release().await.unwrap();
    let writer = soon(writer).await.unwrap().unwrap();
    writer.downgrade().await.unwrap();
    let beside = lock.try_read().await.unwrap();
    assert!(beside.is_some(), "nobody waits to write any more");
}

#[tokio::test(start_paused = true)]
async fn leases_other_than_a_live_writers_cannot_be_downgraded() {
    let quorum = Quorum::in_memory(3);
    let lease = quorum.mutex("a").lock().await.unwrap();
    assert!(matches!(lease.downgrade().await, Err(Error::Invalid(_))));
    assert!(lease.is_valid());
    let permit = quorum.semaphore("s", 2).acquire().await.unwrap();
    assert!(matches!(permit.downgrade().await, Err(Error::Invalid(_))));
    let lease = quorum.rwlock("a").write().await.unwrap();
    quorum.shutdown().await;
    assert!(lease.downgrade().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_and_ends() {
    let quorum = Quorum::in_memory(3);
    let lock = quorum.rwlock("index").ttl(ms(200));
    let read = lock.read().await.unwrap();
    let beside = lock.clone().renewal(Renewal::off()).read().await.unwrap();
    sleep(ms(500)).await;
    assert!(read.is_valid() && !beside.is_valid());
    read.release().await.unwrap();
    let wrote = soon(lock.write()).await.unwrap();
    sleep(ms(500)).await;
    assert!(wrote.is_valid());
    drop(beside);
    wrote.release().await.unwrap();
    let is_valid = |watch: quorate::LeaseWatch| async move { watch.is_valid() };
    assert!(lock.run_read(is_valid).await.unwrap());
    assert!(lock.run_write(is_valid).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn work_is_tried_beside_readers_and_alone() {
    let quorum = Quorum::in_memory(3);
    let lock = quorum.rwlock("index");
    let is_valid = |watch: quorate::LeaseWatch| async move { watch.is_valid() };
    let reads = lock.read().await.unwrap();
    assert_eq!(lock.try_run_read(is_valid).await.unwrap(), Some(true));
    let runs = |_| async { panic!("it runs beside a reader") };
    assert_eq!(lock.try_run_write::<_, _, ()>(runs).await.unwrap(), None);
    reads.release().await.unwrap();
    assert_eq!(lock.try_run_write(is_valid).await.unwrap(), Some(true));
    // The lock was released.
    let writes = lock.try_write().await.unwrap().unwrap();
    let runs = |_| async { panic!("it runs beside a writer") };
    assert_eq!(lock.try_run_read::<_, _, ()>(runs).await.unwrap(), None);
    drop(writes);
}

#[tokio::test(start_paused = true)]
async fn invalid_settings_are_refused_without_asking_nodes() {
    let quorum = Quorum::in_memory(3);
    for lock in [quorum.rwlock(""), quorum.rwlock("a").ttl(ms(1))] {
        assert!(matches!(lock.validate(), Err(Error::Invalid(_))));
        assert!(matches!(lock.read().await, Err(Error::Invalid(_))));
        assert!(matches!(lock.try_write().await, Err(Error::Invalid(_))));
    }
}

//! The same matrix for a semaphore: no matter what is dropped, every slot is free for others long before a ttl is over,
//! and no waiter is left in a queue.

use super::*;
use quorate::Semaphore;

const LIMIT: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Acquire,
    /// Another client holds all slots.
    AcquireInLine,
    /// Another client frees its slots meanwhile.
    AcquireHandedOver,
    TryAcquire,
    /// Two permits at once.
    AcquireMany,
    /// Two permits at once, while another client holds all slots and frees them.
    AcquireManyHandedOver,
    Extend,
    Release,
    /// A lease of two permits.
    ReleaseMany,
    /// Drops the lease itself.
    Drop,
    Run,
    TryRun,
    /// The work takes long, and is dropped while it runs.
    RunLong,
    Resize,
    Available,
}

impl Op {
    /// The number of permits that the operation needs to have beforehand.
    fn had(self) -> u32 {
        match self {
            Self::Extend | Self::Release | Self::Drop => 1,
            Self::ReleaseMany => 2,
            _ => 0,
        }
    }

    /// Returns true if another client holds all slots when the operation begins.
    fn meets_others(self) -> bool {
        self == Self::AcquireInLine || self.is_handed_over()
    }

    fn is_handed_over(self) -> bool {
        matches!(self, Self::AcquireHandedOver | Self::AcquireManyHandedOver)
    }
}

impl Bench {
    async fn permits(&self, op: Op, fault: Fault, bad: usize) {
        let cell = format!("{op:?} × {fault:?} × {bad} of 3");
        let (mut held, mut theirs) = (Vec::new(), Vec::new());
        for i in 0..MOMENTS.len() {
            let name = format!("{cell} {i}");
            held.push(match op.had() {
                0 => None,
                n => Some(slots(&self.ours, &name).acquire_many(n).await.unwrap()),
            });
            if op.meets_others() {
                let all = slots(&self.other, &name).acquire_many(LIMIT).await;
                theirs.push(all.unwrap());
            }
        }
        let operations = MOMENTS.into_iter().enumerate().zip(held);
        let operations = operations.map(|((i, when), lease)| {
            let semaphore = slots(&self.ours, &format!("{cell} {i}"));
            operate(semaphore, lease, op, when)
        });
        let theirs = (theirs, op.is_handed_over());
        self.play(
            &cell,
            (fault, bad),
            theirs,
            operations,
            async |name, when| {
                all_soon(&self.other, name, when).await;
            },
        )
        .await;
    }
}

fn slots(quorum: &Quorum, name: &str) -> Semaphore {
    quorum.semaphore(name, LIMIT).ttl(TTL)
}

/// Runs one operation, and drops it at its moment.
async fn operate(
    semaphore: Semaphore,
    lease: Option<Lease>,
    op: Op,
    when: When,
) -> Result<(), Error> {
    let quick = |watch: LeaseWatch| async move {
        tokio::task::yield_now().await;
        watch.token()
    };
    let lease_of = |lease: Option<Lease>| lease.expect("taken before");
    let waits = |d| semaphore.clone().wait_timeout(Duration::from_millis(d));
    match op {
        Op::Acquire => drop(dropped(semaphore.acquire(), when).await.transpose()?),
        Op::AcquireInLine => match dropped(waits(200).acquire(), when).await {
            Some(Ok(lease)) => panic!("all are held by another: {lease:?}"),
            Some(Err(Error::Held(_) | Error::NoQuorum(_))) | None => {}
            Some(Err(error)) => panic!("{error}"),
        },
        Op::AcquireHandedOver => match dropped(waits(2_000).acquire(), when).await {
            Some(Err(Error::Held(_))) | None => {}
            Some(granted) => drop(granted?),
        },
        Op::TryAcquire => drop(dropped(semaphore.try_acquire(), when).await.transpose()?),
        Op::AcquireMany => drop(dropped(semaphore.acquire_many(2), when).await.transpose()?),
        Op::AcquireManyHandedOver => match dropped(waits(2_000).acquire_many(2), when).await {
            Some(Err(Error::Held(_))) | None => {}
            Some(granted) => assert_eq!(granted?.slots().len(), 2),
        },
        Op::Extend => {
            let lease = lease_of(lease);
            let extended = dropped(lease.extend(), when).await;
            assert!(lease.is_valid(), "dropping an extension takes nothing");
            extended.transpose()?;
        }
        Op::Release | Op::ReleaseMany => {
            dropped(lease_of(lease).release(), when).await.transpose()?;
        }
        Op::Drop => drop(lease),
        Op::Run => drop(dropped(semaphore.run(quick), when).await.transpose()?),
        Op::TryRun => drop(dropped(semaphore.try_run(quick), when).await.transpose()?),
        Op::RunLong => {
            let long = |watch: LeaseWatch| async move { watch.lost().await };
            let when = match when {
                When::Done => When::After(Duration::from_millis(250)),
                when => when,
            };
            let _ = dropped(semaphore.run(long), when).await.transpose()?;
        }
        Op::Resize => drop(dropped(semaphore.resize(LIMIT), when).await.transpose()?),
        Op::Available => drop(dropped(semaphore.available(), when).await.transpose()?),
    }
    Ok(())
}

/// Checks that another client gets all slots at once, long before a ttl is over, and releases them.
async fn all_soon(other: &Quorum, name: &str, when: &str) {
    let deadline = Instant::now() + SOON;
    let semaphore = slots(other, name).wait_timeout(Duration::from_secs(1));
    loop {
        match semaphore.acquire_many(LIMIT).await {
            Ok(lease) => return drop(lease),
            Err(error) => assert!(Instant::now() < deadline, "{name}, {when}: {error}"),
        }
    }
}

async fn matrix(kind: Kind, ops: &[Op]) {
    let bench = Bench::start(kind).await;
    for &op in ops {
        bench.permits(op, Fault::Ok, 0).await;
        for fault in [Fault::Error, Fault::Slow, Fault::Never] {
            for bad in 1..=3 {
                bench.permits(op, fault, bad).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_dropped_anywhere_leaves_nothing() {
    matrix(Kind::Redis, &[Op::Acquire, Op::TryAcquire]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_a_slot_dropped_anywhere_leaves_nothing() {
    matrix(Kind::Valkey, &[Op::AcquireInLine, Op::AcquireHandedOver]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_permits_dropped_anywhere_leave_nothing() {
    let ops = [Op::AcquireMany, Op::AcquireManyHandedOver, Op::ReleaseMany];
    matrix(Kind::Redis, &ops).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_permit_dropped_anywhere_is_released() {
    matrix(Kind::Valkey, &[Op::Extend, Op::Release, Op::Drop]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_and_questions_dropped_anywhere_leave_nothing() {
    let ops = [Op::Run, Op::TryRun, Op::RunLong, Op::Resize, Op::Available];
    matrix(Kind::Redis, &ops).await;
}

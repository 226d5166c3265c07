//! One process of the load. Its tasks each take a lock again and again, read the store, sleep, and write. They are
//! careless on purpose: a section whose lease is lost goes on and writes.
//!
//! The process lives as long as its standard input is open, so it ends with the process that started it.

use std::{
    io::{self, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::future::{Either, select};
use quorate::{Error, Lease, LeaseWatch};
use tokio::{sync::watch, time};

use super::{
    history::{ALIVE, Access, Accesses, Event, Recorder, clock, now, record_of},
    locks::{Wish, Wishes, locks},
    store::Store,
};
use crate::{
    args::{Args, Load},
    failure::{Failure, SOFTWARE},
    output,
    signals::Signals,
};

/// One section in this many lasts longer than a ttl.
const LONG_EVERY: u64 = 200;
/// How often a section looks at its lease.
const SLICE: Duration = Duration::from_millis(20);
/// How often the parent gets the counts.
const NEWS: Duration = Duration::from_millis(200);
/// If the end of the validity has moved by more than this (in ns), the lease was renewed.
const RENEWED: u64 = 10_000_000;
/// The rest after an operation that was not granted.
const DISAPPOINTED: Duration = Duration::from_millis(100);
/// The longest rest between two sections of a task, in which other tasks get their turn.
const REST_US: u64 = 5_000;

/// Numbers that the parent adds up. The process prints a line of them now and then.
#[derive(Default)]
struct Counts {
    sections: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

/// The state that all tasks of a process share.
struct Shared {
    recorder: Recorder,
    counts: Counts,
    section: Duration,
    ttl: Duration,
}

pub(super) async fn run(
    args: &Args,
    load: &Load,
    index: u32,
    history: &Path,
) -> Result<u8, Failure> {
    let mut signals = Signals::new()?;
    let label = format!("{}.{index}", args.fleet.label());
    let ttl = super::ttl(args, load);
    let recorder =
        Recorder::create(history, &label).map_err(|error| super::cannot_record(history, &error))?;
    let process = Event::Process {
        label: label.clone(),
        clock: clock(),
        ttl_ms: output::milliseconds(ttl),
        locks: locks(load),
    };
    recorder
        .write(process)
        .map_err(|error| super::cannot_record(history, &error))?;
    let store = match &load.names.store {
        Some(url) => Some(Store::new(url, args.fleet.prefix()).map_err(Failure::usage)?),
        None => None,
    };
    let builder = super::without_rule(args.fleet.builder()?, load);
    let quorum = builder.label(label).connect_lazy()?;
    let shared = Arc::new(Shared {
        recorder,
        counts: Counts::default(),
        section: load.section,
        ttl,
    });
    let (stop, stopped) = watch::channel(false);
    watch_stdin(stop);
    let mut stopping = stopped.clone();
    let recording = Arc::clone(&shared);
    tokio::spawn(async move {
        let _ = stopping.wait_for(|stop| *stop).await;
        // If this write fails, the tasks' writes fail too, and they report it.
        let _ = recording.recorder.write(Event::Stopping);
    });
    let tasks: Vec<_> = (0..load.tasks)
        .map(|task| {
            let turn = u64::from(index) * u64::from(load.tasks) + u64::from(task);
            let own = turn % u64::from(load.names.count);
            // Waits that time out, and futures that are dropped at the end, must leave nothing behind.
            let wishes = Wishes::new(&quorum, load, own, ttl, ttl * 2);
            tokio::spawn(work(
                Arc::clone(&shared),
                wishes,
                store.clone(),
                stopped.clone(),
            ))
        })
        .collect();
    let reports = tokio::spawn(report(Arc::clone(&shared)));
    let alive = tokio::spawn(live(Arc::clone(&shared)));
    // The parent decides when the run is over, while ^C reaches the whole group.
    let ignore = tokio::spawn(async move {
        loop {
            signals.next().await;
        }
    });
    let mut outcome = Ok(0);
    for task in tasks {
        match task.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => outcome = Err(super::cannot_record(history, &error)),
            Err(error) => outcome = Err(internal(&error)),
        }
    }
    quorum.shutdown().await;
    reports.abort();
    alive.abort();
    ignore.abort();
    shared.report();
    outcome
}

fn internal(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(
        SOFTWARE,
        "internal",
        format!("a process of the load ended early: {error}"),
    )
}

/// Reads in a thread, because the read blocks. The process ends without waiting for the thread.
fn watch_stdin(stop: watch::Sender<bool>) {
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        while stdin.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
        let _ = stop.send(true);
    });
}

async fn report(shared: Arc<Shared>) {
    loop {
        time::sleep(NEWS).await;
        shared.report();
    }
}

/// Tells the judge that this process does not stand still.
async fn live(shared: Arc<Shared>) -> io::Result<()> {
    loop {
        shared.recorder.write(Event::Alive)?;
        time::sleep(ALIVE).await;
    }
}

impl Shared {
    fn report(&self) {
        let Counts {
            sections,
            refused,
            failed,
        } = &self.counts;
        output::say(&format!(
            "{} {} {}",
            sections.load(Relaxed),
            refused.load(Relaxed),
            failed.load(Relaxed)
        ));
    }

    /// A random time of up to twice the average, and now and then one longer than the lease.
    fn section_time(&self) -> Duration {
        if rand::random_range(0..LONG_EVERY) == 0 {
            return self.ttl + self.ttl / 2;
        }
        self.section.mul_f64(rand::random_range(0.0..2.0))
    }
}

/// Runs one task until the end.
async fn work(
    shared: Arc<Shared>,
    wishes: Wishes,
    mut store: Option<Store>,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let recorder = &shared.recorder;
    loop {
        let op = recorder.next_op();
        let wish = wishes.next();
        let (name, also) = split(wish.names.clone());
        recorder.write(Event::Invoked {
            op,
            name: name.unwrap_or_default(),
            also,
            side: wish.side,
        })?;
        let granted = tokio::select! {
            biased;
            // The future is dropped then, no matter what it is waiting for.
            _ = stop.wait_for(|stop| *stop) => {
                return recorder.write(Event::Failed { op, why: "stopped".into() });
            }
            granted = wish.take() => granted,
        };
        match granted {
            Ok(lease) => section(&shared, op, &wish, lease, store.as_mut()).await?,
            Err(Error::Closed) => {
                return recorder.write(Event::Failed {
                    op,
                    why: "closed".into(),
                });
            }
            Err(error) => {
                shared.counts.failed.fetch_add(1, Relaxed);
                let why = Failure::from(error).kind().to_owned();
                recorder.write(Event::Failed { op, why })?;
                // Without a majority the answer comes at once, so rest before asking again.
                time::sleep(DISAPPOINTED.mul_f64(rand::random_range(0.5..1.5))).await;
            }
        }
        time::sleep(Duration::from_micros(rand::random_range(0..REST_US))).await;
        if *stop.borrow() {
            return Ok(());
        }
    }
}

async fn section(
    shared: &Shared,
    op: u64,
    wish: &Wish,
    lease: Lease,
    mut store: Option<&mut Store>,
) -> io::Result<()> {
    let recorder = &shared.recorder;
    let (token, slot) = (lease.token(), lease.slot());
    let names = wish.names.iter();
    let records: Vec<String> = names.map(|name| record_of(name, slot)).collect();
    let mut held = Held::new(lease.watch());
    let (at, left) = held.look();
    let valid_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
    recorder.write_at(
        at,
        Event::Granted {
            op,
            token: token.as_u64(),
            valid_ns,
            slot,
        },
    )?;

    let mut read = vec![Accesses::NO_STORE; records.len()];
    if let Some(store) = &mut store {
        read = store.read(&records, token, wish.side).await;
    }
    let (first, also) = split(read.clone());
    let Accesses { fenced, plain } = first.unwrap_or(Accesses::NO_STORE);
    recorder.write(Event::Begun {
        op,
        fenced,
        plain,
        also,
    })?;

    let end = time::Instant::now() + shared.section_time();
    let mut lost = false;
    let mut known = held.valid_until;
    while time::Instant::now() < end {
        held.look();
        if held.valid_until > known.saturating_add(RENEWED) {
            known = held.valid_until;
            recorder.write(Event::Renewed {
                op,
                valid_until: known,
            })?;
        }
        let slice = std::pin::pin!(time::sleep_until(end.min(time::Instant::now() + SLICE)));
        if lost {
            slice.await;
            continue;
        }
        if let Either::Left((reason, _)) = select(std::pin::pin!(held.watch.lost()), slice).await {
            lost = true;
            recorder.write(Event::Lost {
                op,
                reason: reason.to_string(),
            })?;
        }
    }
    held.look();

    recorder.write(Event::Writing { op })?;
    let mut wrote = read.clone();
    if let Some(store) = &mut store {
        wrote = store.write(&records, token, wish.side, &read).await;
    }
    held.look();
    let is_refused = wrote.iter().any(|it| it.fenced == Access::REFUSED);
    let (first, also) = split(wrote);
    let Accesses { fenced, plain } = first.unwrap_or(Accesses::NO_STORE);
    recorder.write(Event::Ended {
        op,
        fenced,
        plain,
        also,
        valid_until: held.valid_until,
    })?;
    shared.counts.sections.fetch_add(1, Relaxed);
    if is_refused {
        shared.counts.refused.fetch_add(1, Relaxed);
    }
    let outcome = match lease.release().await {
        Ok(()) => "confirmed".to_owned(),
        Err(error) => Failure::from(error).kind().to_owned(),
    };
    recorder.write(Event::Released { op, outcome })
}

/// Splits off the first element, which always exists.
fn split<T>(all: Vec<T>) -> (Option<T>, Vec<T>) {
    let mut all = all.into_iter();
    (all.next(), all.collect())
}

/// A lease, and the latest end of its validity that was seen.
struct Held {
    watch: LeaseWatch,
    valid_until: u64,
}

impl Held {
    fn new(watch: LeaseWatch) -> Self {
        Self {
            watch,
            valid_until: 0,
        }
    }

    /// The clock is read first, so the end that is computed is never later than the true one.
    fn look(&mut self) -> (u64, Duration) {
        let at = now();
        let left = self.watch.validity();
        if !left.is_zero() {
            let nanos = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
            self.valid_until = self.valid_until.max(at.saturating_add(nanos));
        }
        (at, left)
    }
}

//! The times for which this machine gave a process no processor.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// A thread that wakes up every millisecond and measures by how much it is late. A bound of time that rests on a process
/// that runs is longer by that.
pub struct Stalls(Arc<Seen>);

#[derive(Default)]
struct Seen {
    longest_us: AtomicU64,
    is_over: AtomicBool,
}

impl Stalls {
    pub fn watch() -> Self {
        let seen = Arc::new(Seen::default());
        let inner = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut last = Instant::now();
            while !inner.is_over.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
                let took = last.elapsed().as_micros();
                inner
                    .longest_us
                    .fetch_max(took.try_into().unwrap(), Relaxed);
                last = Instant::now();
            }
        });
        Self(seen)
    }

    /// The longest so far, with the millisecond.
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.0.longest_us.load(Relaxed))
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.0.is_over.store(true, Relaxed);
    }
}

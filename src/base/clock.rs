//! Time as the library sees it: a monotonic clock that also counts suspended time, the wall clock for tokens, and one
//! alarm to sleep by.
//!
//! On Linux the clock is `CLOCK_BOOTTIME` with a timerfd. `CLOCK_MONOTONIC`, and with it tokio's timers, stop while a
//! machine is suspended, and would make a dead lease look alive (protocol §1). Tests and in-process quorums follow
//! tokio's clock, which a test may pause.

use std::{
    fmt,
    num::NonZeroU64,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// An instant on one clock, in nanoseconds since that clock's own start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tick(
    /// One more than the nanoseconds, so that `Option<Tick>` takes no more room. Every waiter keeps dozens of them.
    NonZeroU64,
);

impl Tick {
    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    pub(crate) const fn nanos(self) -> u64 {
        self.0.get() - 1
    }

    pub(crate) fn plus(self, d: Duration) -> Self {
        Self(self.0.saturating_add(nanos(d)))
    }

    pub(crate) fn minus(self, d: Duration) -> Self {
        Self::from_nanos(self.nanos().saturating_sub(nanos(d)))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }
}

impl Default for Tick {
    fn default() -> Self {
        Self::from_nanos(0)
    }
}

impl fmt::Debug for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.nanos()))
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// A source of time.
pub(crate) trait Clock: Send + Sync + fmt::Debug {
    /// The time of a monotonic clock that counts suspended time.
    fn now(&self) -> Tick;
    /// The wall clock in µs since 1970. Tokens start from it, but it never decides anything.
    fn wall_us(&self) -> u64;
}

/// Wakes the engine at an instant of its clock; one instant at a time.
///
/// It never rings by the clock alone. The runtime has to look at the sockets before any node is called late. A process
/// that stood still, or whose runtime was blocked, finds its deadlines over while answers are still unread. Reading the
/// sockets first is not enough, because tokio does not ask the kernel before its reactor has reported something to
/// read.
pub(crate) trait Alarm: Send {
    /// Ready with an instant once `at` has come and the reactor knows of everything that had arrived by that instant.
    /// Otherwise it wakes the task then. It may ring early.
    fn poll_at(&mut self, cx: &mut Context<'_>, now: Tick, at: Tick) -> Poll<Tick>;
}

fn wall_us() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(target_os = "linux")]
pub(crate) use linux::{SystemAlarm, SystemClock};

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        io,
        os::fd::OwnedFd,
        task::{Context, Poll, ready},
        time::Duration,
    };

    use rustix::time::{
        ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec,
        clock_gettime, timerfd_create, timerfd_settime,
    };
    use tokio::io::unix::AsyncFd;

    use super::{Alarm, Clock, Tick};

    /// `CLOCK_BOOTTIME`.
    #[derive(Debug, Default)]
    pub(crate) struct SystemClock;

    impl Clock for SystemClock {
        fn now(&self) -> Tick {
            let t = clock_gettime(ClockId::Boottime);
            let secs = u64::try_from(t.tv_sec).unwrap_or(0);
            let nanos = u64::try_from(t.tv_nsec).unwrap_or(0);
            Tick::from_nanos(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
        }

        fn wall_us(&self) -> u64 {
            super::wall_us()
        }
    }

    /// A timerfd on `CLOCK_BOOTTIME`. It rings at once when a suspended machine wakes up.
    ///
    /// It is one of the reactor's descriptors, and epoll reports descriptors in the order in which they became ready.
    /// So when it reports the timer, it has already reported every socket that had something to read by then. That
    /// holds on both kinds of runtime. `tokio::task::yield_now` would not do: anything else that wakes this task ends
    /// that wait, and only one of several workers has the reactor.
    pub(crate) struct SystemAlarm {
        fd: AsyncFd<OwnedFd>,
        armed: Option<Tick>,
    }

    impl SystemAlarm {
        /// Needs the runtime that will poll it.
        pub(crate) fn new() -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let fd = timerfd_create(TimerfdClockId::Boottime, flags)?;
            // `AsyncFd::new` is deprecated because a type's descriptor might change under it. The descriptor of an
            // `OwnedFd` does not.
            #[allow(deprecated)]
            let fd = AsyncFd::new(fd)?;
            Ok(Self { fd, armed: None })
        }

        fn arm(&mut self, at: Tick) {
            let d = Duration::from_nanos(at.nanos().max(1));
            let it_value = Timespec {
                tv_sec: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: d.subsec_nanos().into(),
            };
            let it_interval = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let spec = Itimerspec {
                it_interval,
                it_value,
            };
            if timerfd_settime(self.fd.get_ref(), TimerfdTimerFlags::ABSTIME, &spec).is_ok() {
                self.armed = Some(at);
            }
        }
    }

    impl Alarm for SystemAlarm {
        fn poll_at(&mut self, cx: &mut Context<'_>, now: Tick, at: Tick) -> Poll<Tick> {
            let at = at.max(now);
            // An alarm that rings early is harmless. Not setting it again saves a system call on every request, because
            // the earliest deadline seldom moves forward.
            if self.armed.is_none_or(|armed| at < armed) {
                self.arm(at);
            }
            while let Ok(mut guard) = ready!(self.fd.poll_read_ready(cx)) {
                let mut count = [0; 8];
                let rang = rustix::io::read(guard.get_inner(), &mut count).is_ok();
                guard.clear_ready();
                if rang {
                    break;
                }
            }
            Poll::Ready(self.armed.take().unwrap_or(at))
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) use tokio_clock::{TokioAlarm as SystemAlarm, TokioClock as SystemClock};

pub(crate) use tokio_clock::{TokioAlarm, TokioClock};

mod tokio_clock {
    use std::{future::Future, sync::OnceLock, time::Duration};

    use tokio::{
        task::yield_now,
        time::{Instant, sleep_until},
    };

    use super::{Alarm, Clock, Context, Pin, Poll, Tick};

    /// The clock starts at this, so that there are instants before its start.
    const START: Duration = Duration::from_secs(3600);

    /// tokio's clock. The wall clock is read once in a process and then follows tokio's clock. So all clocks of one
    /// runtime show the same wall clock, however tokio's clock is paused or moved. A client and its in-process nodes
    /// never differ.
    #[derive(Debug)]
    pub(crate) struct TokioClock {
        start: Instant,
    }

    /// The instant at which the wall clock was read, and its value. The first runtime reads it.
    static FIRST: OnceLock<(Instant, u64)> = OnceLock::new();

    /// The wall clock in µs, by tokio's clock. A paused clock may show an instant before the first one.
    fn wall_us() -> u64 {
        let (first, wall_us) = *FIRST.get_or_init(|| (Instant::now(), super::wall_us()));
        let micros = |d: Duration| u64::try_from(d.as_micros()).unwrap_or(u64::MAX);
        let now = Instant::now();
        wall_us
            .saturating_add(micros(now.saturating_duration_since(first)))
            .saturating_sub(micros(first.saturating_duration_since(now)))
    }

    impl TokioClock {
        pub(crate) fn new() -> Self {
            Self {
                start: Instant::now(),
            }
        }
    }

    impl Default for TokioClock {
        fn default() -> Self {
            Self::new()
        }
    }

    impl Clock for TokioClock {
        fn now(&self) -> Tick {
            Tick::default().plus(START).plus(self.start.elapsed())
        }

        fn wall_us(&self) -> u64 {
            wall_us()
        }
    }

    /// A tokio timer. An instant that is already due waits for one turn of the reactor, unless something else wakes the
    /// task before. tokio offers no more than that.
    #[derive(Default)]
    pub(crate) struct TokioAlarm {
        armed: Option<(Tick, Wait)>,
    }

    type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;

    #[cfg(not(target_os = "linux"))]
    impl TokioAlarm {
        /// As the alarm of Linux is made, which may fail.
        pub(crate) fn new() -> std::io::Result<Self> {
            Ok(Self::default())
        }
    }

    impl Alarm for TokioAlarm {
        fn poll_at(&mut self, cx: &mut Context<'_>, now: Tick, at: Tick) -> Poll<Tick> {
            let at = at.max(now);
            let (armed, wait) = match &mut self.armed {
                Some(armed) if armed.0 <= at => armed,
                armed => {
                    let wait: Wait = match at == now {
                        true => Box::pin(yield_now()),
                        false => Box::pin(sleep_until(Instant::now() + at.since(now))),
                    };
                    armed.insert((at, wait))
                }
            };
            let seen = *armed;
            wait.as_mut().poll(cx).map(|()| {
                self.armed = None;
                seen
            })
        }
    }
}

/// The CPU time of this thread, for tests that measure a cost while other tests run.
#[cfg(test)]
pub(crate) fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap(), nanos.unwrap())
}

/// A clock that a simulation sets by hand.
#[cfg(any(test, feature = "test-util"))]
#[derive(Debug, Default)]
pub(crate) struct ManualClock {
    now: std::sync::atomic::AtomicU64,
    wall_us: std::sync::atomic::AtomicU64,
}

#[cfg(any(test, feature = "test-util"))]
impl ManualClock {
    pub(crate) fn set(&self, now: Tick, wall_us: u64) {
        use std::sync::atomic::Ordering::SeqCst;
        self.now.store(now.nanos(), SeqCst);
        self.wall_us.store(wall_us, SeqCst);
    }
}

#[cfg(any(test, feature = "test-util"))]
impl Clock for ManualClock {
    fn now(&self) -> Tick {
        Tick::from_nanos(self.now.load(std::sync::atomic::Ordering::SeqCst))
    }

    fn wall_us(&self) -> u64 {
        self.wall_us.load(std::sync::atomic::Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_saturate() {
        let t = Tick::from_nanos(5);
        assert_eq!(t.minus(Duration::from_secs(1)), Tick::default());
        assert_eq!(t.since(t.plus(Duration::from_nanos(1))), Duration::ZERO);
        assert_eq!(t.plus(Duration::MAX), Tick::from_nanos(u64::MAX));
    }

    #[tokio::test]
    async fn the_alarm_rings_at_its_time_and_can_be_moved_forward() {
        let clock = SystemClock;
        let mut alarm = SystemAlarm::new().unwrap();
        let start = clock.now();
        let late = start.plus(Duration::from_secs(60));
        let soon = start.plus(Duration::from_millis(20));
        std::future::poll_fn(|cx| {
            assert!(alarm.poll_at(cx, clock.now(), late).is_pending());
            Poll::Ready(())
        })
        .await;
        let seen = std::future::poll_fn(|cx| alarm.poll_at(cx, clock.now(), soon)).await;
        assert_eq!(seen, soon);
        let took = clock.now().since(start);
        assert!(took >= Duration::from_millis(20), "{took:?}");
        // Long before the minute for which it was set first.
        assert!(took < Duration::from_secs(10), "{took:?}");
    }

    /// An alarm that is due by the clock rings only once the reactor has reported what had arrived by then, however the
    /// task is woken meanwhile.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_due_alarm_rings_only_after_the_reactor_has_polled() {
        use std::io::Write as _;
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let ours = tokio::net::UnixStream::from_std(ours).unwrap();
        let mut alarm = SystemAlarm::new().unwrap();
        for round in 0..3 {
            theirs.write_all(b"x").unwrap();
            let due = SystemClock.now();
            let mut polls = 0;
            let seen = std::future::poll_fn(|cx| {
                polls += 1;
                cx.waker().wake_by_ref();
                alarm.poll_at(cx, SystemClock.now(), due)
            })
            .await;
            assert!(
                polls > 1 && seen >= due,
                "round {round}: by the clock alone"
            );
            let read = ours.try_read(&mut [0; 8]);
            assert_eq!(read.ok(), Some(1), "round {round}");
        }
    }
}

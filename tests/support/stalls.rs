//! The times for which this machine gave a process no processor, and for which a server gave no answer.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use super::{Agent, HANG, Server};

/// A thread that wakes up every millisecond and measures by how much it is late. A bound of time that rests on a
/// process that runs is longer by that.
pub struct Stalls(Arc<Seen>);

/// A thread that asks a server again and again and measures its answers. A bound of time that rests on the server is
/// longer by that.
pub struct Slowest(Arc<Seen>);

struct Seen {
    start: Instant,
    longest_us: AtomicU64,
    /// When the sleep or the request that is under way began, in µs since the start. `IDLE` if there is none.
    began_us: AtomicU64,
    is_over: AtomicBool,
}

const IDLE: u64 = u64::MAX;

impl Seen {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            longest_us: AtomicU64::new(0),
            began_us: AtomicU64::new(IDLE),
            is_over: AtomicBool::new(false),
        })
    }

    fn now_us(&self) -> u64 {
        self.start.elapsed().as_micros().try_into().unwrap()
    }

    /// Measures this.
    fn time<T>(&self, what: impl FnOnce() -> T) -> T {
        let began = self.now_us();
        self.began_us.store(began, SeqCst);
        let done = what();
        self.longest_us.fetch_max(self.now_us() - began, SeqCst);
        self.began_us.store(IDLE, SeqCst);
        done
    }

    /// The longest so far. A measurement under way counts with the time that it has taken.
    fn longest(&self) -> Duration {
        let now = self.now_us();
        // The order matters: a measurement that ends between the two reads is in the second.
        let under_way = now.saturating_sub(self.began_us.load(SeqCst));
        Duration::from_micros(self.longest_us.load(SeqCst).max(under_way))
    }
}

impl Stalls {
    pub fn watch() -> Self {
        let seen = Seen::new();
        let inner = Arc::clone(&seen);
        std::thread::spawn(move || {
            while !inner.is_over.load(SeqCst) {
                inner.time(|| sleep(Duration::from_millis(1)));
            }
        });
        Self(seen)
    }

    /// The longest so far, with the millisecond.
    pub fn longest(&self) -> Duration {
        self.0.longest()
    }
}

impl Slowest {
    /// Asks this Redis or Valkey, which must answer now.
    pub fn of_server(server: &Server) -> Self {
        let mut conn = server.conn();
        Self::watch(move || redis::cmd("PING").exec(&mut conn).is_ok())
    }

    /// Asks this agent of Consul for its leader.
    pub fn of_agent(agent: &Agent) -> Self {
        let address = agent.address();
        Self::watch(move || ask_for_leader(&address).is_ok())
    }

    /// Asks every 20 ms, until `ask` returns false because the server has ended.
    fn watch(mut ask: impl FnMut() -> bool + Send + 'static) -> Self {
        let seen = Seen::new();
        let inner = Arc::clone(&seen);
        std::thread::spawn(move || {
            while !inner.is_over.load(SeqCst) && inner.time(&mut ask) {
                sleep(Duration::from_millis(20));
            }
        });
        Self(seen)
    }

    /// The slowest answer so far. An answer that is not there yet counts with the time that it has taken.
    pub fn answer(&self) -> Duration {
        self.0.longest()
    }
}

fn ask_for_leader(address: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(HANG))?;
    stream.write_all(b"GET /v1/status/leader HTTP/1.0\r\n\r\n")?;
    stream.read_to_end(&mut Vec::new()).map(|_| ())
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.0.is_over.store(true, SeqCst);
    }
}

impl Drop for Slowest {
    fn drop(&mut self) {
        self.0.is_over.store(true, SeqCst);
    }
}

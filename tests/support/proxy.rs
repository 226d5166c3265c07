//! The network between a client and one server, with its faults.
//!
//! It runs on a thread and a runtime of its own, because a test that blocks or stops its own runtime must not slow down
//! the network.

use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::port::Port;
use super::{Agent, Server};

#[derive(Clone, Default)]
struct Faults {
    delay: Duration,
    /// The bytes per second in each direction. 0 means no limit.
    rate: u32,
    cut: bool,
    hold_requests: bool,
    hold_replies: bool,
    /// A text that is sent to the client without end, between the server's replies. Nothing is sent if it is empty.
    flood: &'static str,
}

#[derive(Clone, Copy)]
enum Direction {
    Requests,
    Replies,
}

/// The bytes of one write.
const FLOOD_BYTES: usize = 16 * 1024;

impl Direction {
    /// The text that floods this direction.
    fn floods(self, faults: &Faults) -> Option<&'static str> {
        let is_flooded = matches!(self, Self::Replies) && !faults.flood.is_empty();
        is_flooded.then_some(faults.flood)
    }
}

impl Faults {
    fn holds(&self, direction: Direction) -> bool {
        match direction {
            Direction::Requests => self.hold_requests,
            Direction::Replies => self.hold_replies,
        }
    }
}

/// A TCP proxy to one server. Dropping it closes all its connections.
pub struct Proxy {
    port: Port,
    url: String,
    /// `None` only while it is being dropped.
    faults: Option<watch::Sender<Faults>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    pub fn start(server: &Server) -> Proxy {
        Self::to(server.port(), |port| server.url_through(port))
    }

    /// A proxy to a Consul agent.
    pub fn to_consul(agent: &Agent) -> Proxy {
        Self::to(agent.port(), |port| format!("http://127.0.0.1:{port}"))
    }

    fn to(target: u16, url: impl Fn(u16) -> String) -> Proxy {
        let port = Port::claim();
        let listener =
            std::net::TcpListener::bind(("127.0.0.1", port.number())).expect("a claimed port");
        listener.set_nonblocking(true).expect("a socket");
        let (faults, seen) = watch::channel(Faults::default());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            // When this returns, the runtime is dropped with all its tasks and connections.
            runtime.block_on(accept(listener, target, seen));
        });
        Proxy {
            url: url(port.number()),
            port,
            faults: Some(faults),
            thread: Some(thread),
        }
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The server's URL, through this proxy.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// From now on every byte is this much later, in each direction. The order stays the same.
    pub fn delay(&self, one_way: Duration) {
        self.change(|faults| faults.delay = one_way);
    }

    /// From now on this many bytes per second pass in each direction. 0 means no limit. The proxy reads no more than
    /// that, so the senders' sockets fill up.
    pub fn rate(&self, bytes_a_second: u32) {
        self.change(|faults| faults.rate = bytes_a_second);
    }

    /// Closes every connection. New connections are closed at once.
    pub fn cut(&self) {
        self.change(|faults| faults.cut = true);
    }

    /// Silence: connections are accepted, but nothing passes. Sent bytes are kept, as TCP keeps them during a
    /// partition, and arrives late when this ends.
    pub fn blackhole(&self, on: bool) {
        self.change(|faults| {
            faults.hold_requests = on;
            faults.hold_replies = on;
        });
    }

    /// Silence in one direction: the server gets requests and executes them, but its replies are kept back.
    pub fn hold_replies(&self, on: bool) {
        self.change(|faults| faults.hold_replies = on);
    }

    /// From now on the client is sent this text without end, between the server's replies. An empty text ends this.
    pub fn flood(&self, text: &'static str) {
        self.change(|faults| faults.flood = text);
    }

    /// Ends `cut`, `blackhole` and `hold_replies`. The delay and the rate stay.
    pub fn heal(&self) {
        self.change(|faults| {
            *faults = Faults {
                delay: faults.delay,
                rate: faults.rate,
                ..Faults::default()
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Faults)) {
        if let Some(faults) = &self.faults {
            faults.send_modify(change);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.faults = None; // this ends `accept`
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: std::net::TcpListener, target: u16, mut faults: watch::Receiver<Faults>) {
    let listener = TcpListener::from_std(listener).expect("a listening socket");
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                tokio::spawn(connection(client, target, faults.clone()));
            }
            // An error means that the Proxy is gone.
            changed = faults.changed() => if changed.is_err() { return },
        }
    }
}

async fn connection(client: TcpStream, target: u16, faults: watch::Receiver<Faults>) {
    let mut cut = faults.clone();
    let cut = cut.wait_for(|faults| faults.cut);
    let forward = async {
        let server = TcpStream::connect(("127.0.0.1", target)).await?;
        // Without this the proxy would add delays of its own (Nagle) to small requests.
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::try_join!(
            pump(from_client, to_server, faults.clone(), Direction::Requests),
            pump(from_server, to_client, faults.clone(), Direction::Replies),
        )
    };
    tokio::select! {
        biased;
        _ = cut => {}
        _ = forward => {}
    }
}

/// Forwards one direction. Reading and writing are separate, so a delay delays later bytes by no more than its own
/// length. A held direction goes on accepting bytes, as the sender's kernel would.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut faults: watch::Receiver<Faults>,
    direction: Direction,
) -> std::io::Result<()> {
    let (arrived, mut due) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let seen = faults.clone();
    let read = async move {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let n = from.read(&mut buffer).await?;
            let at = Instant::now() + seen.borrow().delay;
            // An empty piece is the end of the stream, and it is late like all other bytes.
            let _ = arrived.send((at, buffer[..n].to_vec()));
            if n == 0 {
                return Ok(());
            }
            let rate = seen.borrow().rate;
            if rate > 0 {
                let took = Duration::from_secs(n as u64) / rate;
                sleep_until(Instant::now() + took).await;
            }
        }
    };
    let write = async move {
        loop {
            let floods = direction.floods(&faults.borrow());
            let next = match (due.try_recv(), floods) {
                (Ok(next), _) => Some(next),
                (Err(_), Some(text)) => {
                    to.write_all(text.repeat(FLOOD_BYTES / text.len()).as_bytes())
                        .await?;
                    continue;
                }
                (Err(_), None) => tokio::select! {
                    next = due.recv() => next,
                    _ = faults.wait_for(|faults| direction.floods(faults).is_some()) => continue,
                },
            };
            let Some((at, bytes)) = next else {
                return Ok(());
            };
            sleep_until(at).await;
            let _ = faults.wait_for(|faults| !faults.holds(direction)).await;
            if bytes.is_empty() {
                to.shutdown().await?;
            } else {
                to.write_all(&bytes).await?;
            }
        }
    };
    tokio::try_join!(read, write).map(|_| ())
}

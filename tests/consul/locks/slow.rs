//! An agent that answers some requests slowly.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::sleep,
};

use super::*;

/// An HTTP proxy in front of one agent. Each request has a connection of its own. Dropping the proxy ends all of them.
pub(super) struct Slow {
    url: String,
    delays: Delays,
    accepts: JoinHandle<()>,
}

type Delays = Arc<Mutex<Option<Delay>>>;

/// Delays requests whose line begins with this text, and also their answers.
#[derive(Clone)]
struct Delay {
    begins: &'static str,
    one_way: Duration,
    counts: Arc<Counts>,
}

/// The requests that were delayed.
#[derive(Default)]
struct Counts {
    begun: AtomicUsize,
    /// Their answers have left the agent.
    answered: AtomicUsize,
}

impl Slow {
    pub(super) async fn start(agent: &Agent) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (delays, address) = (Arc::default(), agent.address());
        let seen = Arc::clone(&delays);
        let accepts = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                connections.spawn(forward(client, address.clone(), Arc::clone(&seen)));
            }
        });
        Self {
            url,
            delays,
            accepts,
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// From now on, requests that begin with this text, such as `GET /v1/kv/`, are slow in each direction. All others
    /// are not.
    pub(super) fn delay(&self, begins: &'static str, one_way: Duration) {
        *self.delays.lock().unwrap() = Some(Delay {
            begins,
            one_way,
            counts: Arc::default(),
        });
    }

    /// Waits until such a request is under way.
    pub(super) async fn begun(&self) {
        let counts = self.counts();
        let is_so = async || counts.begun.load(SeqCst) > 0;
        until("a slow request", SOON, is_so).await;
    }

    /// Waits until the agent has answered such a request. The answer is under way.
    pub(super) async fn answered(&self) {
        let counts = self.counts();
        let is_so = async || counts.answered.load(SeqCst) > 0;
        until("a slow answer", SOON, is_so).await;
    }

    fn counts(&self) -> Arc<Counts> {
        let delay = self.delays.lock().unwrap();
        Arc::clone(&delay.as_ref().expect("a delay").counts)
    }

    /// From now on no request is slow.
    pub(super) fn heal(&self) {
        *self.delays.lock().unwrap() = None;
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}

/// Forwards one request and its answer. If the connection ends before that, there is nothing to answer.
async fn forward(mut client: TcpStream, agent: String, delays: Delays) -> std::io::Result<()> {
    let (head, body) = request(&mut client).await?;
    let delay = delays.lock().unwrap().clone();
    let delay = delay.filter(|delay| head.starts_with(delay.begins));
    let one_way = delay.as_ref().map_or(Duration::ZERO, |delay| delay.one_way);
    if let Some(delay) = &delay {
        delay.counts.begun.fetch_add(1, SeqCst);
    }
    sleep(one_way).await;
    let mut server = TcpStream::connect(agent).await?;
    // The agent closes the connection after its answer, and the header tells the client so.
    let head = head.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    server.write_all(head.as_bytes()).await?;
    server.write_all(&body).await?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).await?;
    if let Some(delay) = &delay {
        delay.counts.answered.fetch_add(1, SeqCst);
    }
    sleep(one_way).await;
    client.write_all(&answer).await
}

/// Reads the head of a request, and its body.
async fn request(client: &mut TcpStream) -> std::io::Result<(String, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.parse().unwrap())
    });
    let mut body = vec![0; length.unwrap_or(0)];
    client.read_exact(&mut body).await?;
    Ok((head, body))
}

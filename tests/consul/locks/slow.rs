//! An agent that answers some requests slowly.

use std::sync::{Arc, Mutex};

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
    delays: Arc<Mutex<Option<Delay>>>,
    accepts: JoinHandle<()>,
}

/// Delays requests whose line begins with this text, and also their answers.
#[derive(Clone, Copy)]
struct Delay {
    begins: &'static str,
    one_way: Duration,
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
        *self.delays.lock().unwrap() = Some(Delay { begins, one_way });
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
async fn forward(
    mut client: TcpStream,
    agent: String,
    delays: Arc<Mutex<Option<Delay>>>,
) -> std::io::Result<()> {
    let (head, body) = request(&mut client).await?;
    let delay = *delays.lock().unwrap();
    let delay = delay.filter(|delay| head.starts_with(delay.begins));
    let one_way = delay.map_or(Duration::ZERO, |delay| delay.one_way);
    sleep(one_way).await;
    let mut server = TcpStream::connect(agent).await?;
    // The agent closes the connection after its answer, and the header tells the client so.
    let head = head.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    server.write_all(head.as_bytes()).await?;
    server.write_all(&body).await?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).await?;
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

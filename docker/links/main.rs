//! The network between one datacenter and the masters: every link has its own delay.
//!
//! ```text
//! links 7001=node1:6379@250us 7003=node3:6379@2ms
//! ```
//!
//! This listens on 127.0.0.1:7001 and forwards everything to node1:6379 and back. Each byte is 250 µs late (one way),
//! and the order stays. Ends and errors arrive after the bytes before them. The kernel's netem is not used, because
//! many kernels lack it and it needs rights. A proxy works everywhere, for every user.
//!
//! `links hold` does nothing until its input ends. So a container lives as long as the process that started it.
//!
//! Each direction of a connection has two threads: one reads, and the other waits and writes. They are not tasks,
//! because tokio's timer counts whole milliseconds. A sleeping thread is exact to about 60 µs.

use std::{
    env,
    error::Error,
    io::{self, ErrorKind, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _},
    sync::{
        Arc, OnceLock,
        mpsc::{self, Receiver, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::signal::unix::{SignalKind, signal};

/// The size of one read, and how many of them may be under way in one direction: 4 MiB at most.
const READ: usize = 4096;
const ON_THE_WAY: usize = 1024;

/// A node that does not answer a SYN for this long is cut off.
const DIAL: Duration = Duration::from_secs(1);

/// Docker's resolver takes a millisecond for a name that it knows. For other names it asks again and again.
const LOOKUP: Duration = Duration::from_millis(200);

/// How long one direction outlives the other without a byte. A kernel also gives up at last on a peer that never
/// acknowledges the end.
const LINGER: Duration = Duration::from_secs(30);

/// How often a thread that waits for the network checks whether that time is over.
const LOOK: Duration = Duration::from_secs(1);

/// Enough for a few nested calls; there may be many threads.
const STACK: usize = 128 * 1024;

struct Link {
    port: u16,
    target: String,
    delay: Duration,
}

/// An event at the other end of a link. It happens no sooner than it is due.
enum Event {
    Bytes(Box<[u8]>),
    End,
    Broken,
}

/// When the first direction of a connection ended.
type Ended = Arc<OnceLock<Instant>>;

fn main() -> Result<(), Box<dyn Error>> {
    match env::args().nth(1).as_deref() {
        Some("--version") => {
            println!("links {}", env!("CARGO_PKG_VERSION"));
            return Ok(());
        }
        Some("hold") => {
            io::copy(&mut io::stdin(), &mut io::sink())?;
            return Ok(());
        }
        _ => {}
    }
    let links: Vec<Link> = env::args()
        .skip(1)
        .map(|word| parse(&word))
        .collect::<Result<_, _>>()?;
    if links.is_empty() {
        return Err("usage: links PORT=HOST:PORT@DELAY ...".into());
    }
    for link in links {
        let listener = TcpListener::bind(("127.0.0.1", link.port))
            .map_err(|error| format!("port {}: {error}", link.port))?;
        spawn(move || serve(&listener, &Arc::new(link)))?;
    }
    // As process 1 of a container, it would not end at a signal by itself.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            Ok(())
        })
}

fn parse(word: &str) -> Result<Link, String> {
    let link = || {
        let (port, rest) = word.split_once('=')?;
        let (target, delay) = rest.rsplit_once('@')?;
        let delay = match delay.strip_suffix("us") {
            Some(us) => Duration::from_micros(us.parse().ok()?),
            None => Duration::from_millis(delay.strip_suffix("ms")?.parse().ok()?),
        };
        Some(Link {
            port: port.parse().ok()?,
            target: target.to_owned(),
            delay,
        })
    };
    link()
        .ok_or_else(|| format!("{word}: expected PORT=HOST:PORT@DELAY, the delay as 250us or 2ms"))
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .stack_size(STACK)
        .spawn(work)
        .map(drop)
}

fn serve(listener: &TcpListener, link: &Arc<Link>) {
    loop {
        let carried = listener.accept().and_then(|(client, _)| {
            let link = Arc::clone(link);
            spawn(move || {
                // If the link for a client cannot be made, the client finds its connection closed.
                if let Err(error) = carry(client, &link) {
                    eprintln!("links: {}: {error}", link.target);
                }
            })
        });
        if let Err(error) = carried {
            // Most likely there are no more files or threads, and that passes.
            eprintln!("links: {}: {error}", link.port);
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn carry(client: TcpStream, link: &Link) -> io::Result<()> {
    // The SYN and its answer are delayed like all other bytes.
    thread::sleep(link.delay * 2);
    let node = dial(&link.target)?;
    for stream in [&client, &node] {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(LOOK))?;
    }
    let ended = Ended::default();
    flow(
        client.try_clone()?,
        node.try_clone()?,
        link.delay,
        Arc::clone(&ended),
    )?;
    flow(node, client, link.delay, ended)
}

fn dial(target: &str) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(ErrorKind::NotFound, "its name is not known: it is away");
    for address in look_up(target.to_owned())? {
        match TcpStream::connect_timeout(&address, DIAL) {
            Ok(node) => return Ok(node),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// The name is looked up every time, because a container that was started again may have another address.
fn look_up(target: String) -> io::Result<Vec<SocketAddr>> {
    let (tell, told) = mpsc::channel();
    spawn(move || {
        let addresses = target.to_socket_addrs();
        // If nobody waits any more, the answer is too late.
        let _ = tell.send(addresses.map(Iterator::collect));
    })?;
    told.recv_timeout(LOOKUP).unwrap_or_else(|_| Ok(Vec::new()))
}

fn flow(from: TcpStream, to: TcpStream, delay: Duration, ended: Ended) -> io::Result<()> {
    let (sender, receiver) = mpsc::sync_channel(ON_THE_WAY);
    let (source, ended_too) = (from.try_clone()?, Arc::clone(&ended));
    spawn(move || {
        read(from, delay, &sender, &ended);
        ended.get_or_init(Instant::now);
    })?;
    spawn(move || {
        let written = write(to, &receiver, &ended_too);
        if written.is_err() {
            // Nobody at the other end would get what is read, so stop reading.
            let _ = source.shutdown(Shutdown::Both);
        }
    })
}

fn read(
    mut from: TcpStream,
    delay: Duration,
    sender: &SyncSender<(Instant, Event)>,
    ended: &Ended,
) {
    let mut room = [0; READ];
    loop {
        let event = match from.read(&mut room) {
            Ok(0) => Event::End,
            Ok(n) => Event::Bytes(room.get(..n).unwrap_or_default().into()),
            Err(error) if passes(&error, ended) => continue,
            Err(_) => Event::Broken,
        };
        let last = !matches!(event, Event::Bytes(_));
        if sender.send((Instant::now() + delay, event)).is_err() || last {
            return;
        }
    }
}

fn write(mut to: TcpStream, events: &Receiver<(Instant, Event)>, ended: &Ended) -> io::Result<()> {
    for (due, event) in events {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        match event {
            Event::Bytes(bytes) => {
                let mut left = &*bytes;
                while !left.is_empty() {
                    match to.write(left) {
                        Ok(n) => left = left.get(n..).unwrap_or_default(),
                        Err(error) if passes(&error, ended) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            Event::End => return to.shutdown(Shutdown::Write),
            Event::Broken => return to.shutdown(Shutdown::Both),
        }
    }
    Ok(())
}

/// Returns true if only time has passed, and more data may come.
fn passes(error: &io::Error, ended: &Ended) -> bool {
    match error.kind() {
        ErrorKind::Interrupted => true,
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            ended.get().is_none_or(|since| since.elapsed() < LINGER)
        }
        _ => false,
    }
}

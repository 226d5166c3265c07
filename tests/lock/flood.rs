//! A node that sends without end, or a stranger who publishes without end, delays neither locks nor deadlines.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use quorate::{Quorum, Renewal};
use redis::FromRedisValue;
use tokio::time::{sleep, timeout};

use crate::support::{Fleet, HANG, Kind, Proxy, Server, Stalls};

const TTL: Duration = Duration::from_secs(2);
/// Far below any timeout here, and far above the time of a lock in a debug build on a busy machine.
const PROMPT: Duration = Duration::from_millis(60);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Nodes behind proxies. All nodes vote.
async fn start() -> (Fleet, Vec<Proxy>, Quorum) {
    let fleet = Fleet::start(3, Kind::Redis);
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    let builder = Quorum::builder().nodes(proxies.iter().map(Proxy::url));
    let quorum = builder.node_timeout(ms(300)).connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    all_vote(&quorum).await;
    (fleet, proxies, quorum)
}

async fn all_vote(quorum: &Quorum) {
    let vote = async {
        while quorum.health().voting < 3 {
            sleep(ms(5)).await;
        }
    };
    timeout(HANG, vote).await.unwrap();
}

/// The median time of a lock and its release.
async fn median(quorum: &Quorum) -> Duration {
    let mut times = Vec::new();
    for n in 0..41 {
        let start = Instant::now();
        let lease = quorum.mutex(format!("{n}")).lock().await.unwrap();
        lease.release().await.unwrap();
        times.push(start.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

/// Checks that a holder learns that its lease is over before the validity ends, when the majority is gone.
async fn loss_is_told_in_time(quorum: &Quorum, majority_goes: impl FnOnce()) {
    let renewal = Renewal::off();
    let lease = quorum
        .mutex("held")
        .ttl(TTL)
        .renewal(renewal)
        .lock()
        .await
        .unwrap();
    let end = Instant::now() + lease.validity();
    majority_goes();
    let machine = Stalls::watch();
    // Only a hang takes this long. The real bound is the end of the validity, below.
    timeout(TTL * 3, lease.lost()).await.unwrap();
    let told = Instant::now();
    // The promise is that of a process that runs. On a busy machine it gets no processor for a while, and it needs one a
    // few times until then.
    let stall = machine.longest() * 4;
    assert!(
        told <= end + stall,
        "told {:?} after the end, with stalls of {stall:?}",
        told - end
    );
}

#[tokio::test]
async fn node_that_floods_delays_no_lock_and_no_loss() {
    let (_fleet, proxies, quorum) = start().await;
    for text in [
        ">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\nx\r\n",
        "+OK\r\n",
        "+a line that never ends ",
    ] {
        proxies[0].flood(text);
        sleep(ms(100)).await;
        let median = median(&quorum).await;
        println!("{text:?}: {median:?}; {}", quorum.nodes()[0]);
        assert!(median < PROMPT, "{text:?}: {median:?}");
        assert!(quorum.health().voting == 2, "{text:?}: its connection ends");
        loss_is_told_in_time(&quorum, || proxies[1].blackhole(true)).await;
        proxies[1].heal();
        proxies[0].flood("");
        all_vote(&quorum).await;
    }
}

/// A node that answers nothing and always has one more message.
#[cfg(feature = "unstable-node")]
mod endless {
    use std::task::{Context, Poll};

    use super::*;
    use quorate::{Connection, Dial, Disconnected, Guard, Incoming, MemoryNode, Node, Operation};

    #[derive(Debug)]
    struct Endless;

    impl Node for Endless {
        fn id(&self) -> &str {
            "endless"
        }

        fn dial(&self, _: &Arc<str>) -> Dial {
            Box::pin(async { Ok(Box::new(Self) as Box<dyn Connection>) })
        }
    }

    impl Connection for Endless {
        fn client_id(&self) -> u64 {
            1
        }

        fn note(&self) -> Option<&str> {
            None
        }

        fn send(&mut self, _: Arc<Operation>, _: Arc<Guard>) {}

        fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Disconnected>> {
            Poll::Ready(Ok(()))
        }

        fn poll_incoming(&mut self, _: &mut Context<'_>) -> Poll<Result<Incoming, Disconnected>> {
            Poll::Ready(Ok(Incoming::Nothing))
        }

        fn withdraw(&mut self) -> usize {
            0
        }
    }

    #[tokio::test]
    async fn node_that_always_has_one_more_message_delays_no_lock_and_no_loss() {
        let nodes = [MemoryNode::new(), MemoryNode::new()];
        let all = Quorum::builder().nodes(&nodes).custom_node(Endless);
        let all = all.max_ttl(TTL * 2).restart_margin(ms(100));
        let quorum = all.connect().await.unwrap();
        // The two nodes that answer vote when their quarantine is over.
        quorum.voting(Duration::from_secs(60)).await.unwrap();
        let median = median(&quorum).await;
        assert!(median < PROMPT, "{median:?}");
        loss_is_told_in_time(&quorum, || nodes[1].stop()).await;
    }
}

/// Publishes to the channel of a waiter without end.
struct Stranger {
    goes_on: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stranger {
    fn start(server: &Server, text: &str) -> Self {
        let channels = server.cmd(&["PUBSUB", "SHARDCHANNELS"]);
        let channels = Vec::<String>::from_redis_value(channels).unwrap();
        let mut pipeline = redis::pipe();
        for _ in 0..500 {
            pipeline
                .cmd("SPUBLISH")
                .arg(&channels[0])
                .arg(text)
                .ignore();
        }
        let mut connection = server.conn();
        let goes_on = Arc::new(AtomicBool::new(true));
        let runs = Arc::clone(&goes_on);
        let thread = Some(std::thread::spawn(move || {
            while runs.load(Relaxed) {
                pipeline.query::<()>(&mut connection).unwrap();
            }
        }));
        Self { goes_on, thread }
    }
}

/// The ids of the connections that listen to a sharded channel.
fn listeners(server: &Server) -> Vec<String> {
    let list = String::from_redis_value(server.cmd(&["CLIENT", "LIST"])).unwrap();
    let listens = list.lines().filter(|client| client.contains(" ssub=1 "));
    let id = |client: &str| client.split(' ').next().unwrap_or_default().to_owned();
    listens.map(id).collect()
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.goes_on.store(false, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

#[tokio::test]
async fn a_flood_by_a_stranger_delays_no_loss_and_ends_no_connection() {
    let (fleet, proxies, quorum) = start().await;
    let entry = "000000000000000000000000000000ab@web-1:77";
    for text in ["x", &format!("W {entry}"), &format!("F {entry}")] {
        let before = listeners(&fleet[0]);
        let stranger = Stranger::start(&fleet[0], text);
        sleep(ms(100)).await;
        let median = median(&quorum).await;
        println!("{text:?}: {median:?}");
        assert!(median < PROMPT, "{text:?}: {median:?}");
        assert_eq!(
            listeners(&fleet[0]),
            before,
            "{text:?}: the same connection"
        );
        let silent = &proxies[1..];
        let majority_goes = || silent.iter().for_each(|proxy| proxy.blackhole(true));
        loss_is_told_in_time(&quorum, majority_goes).await;
        silent.iter().for_each(Proxy::heal);
        drop(stranger);
        all_vote(&quorum).await;
    }
}

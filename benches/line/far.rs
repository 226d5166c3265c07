//! An uncontended lock over nodes at different distances takes one round trip to the third nearest node.

use std::time::{Duration, Instant};

use crate::{
    connect, median,
    show::within,
    support::{Fleet, Proxy},
};

const TRIPS: [u64; 5] = [1, 5, 20, 80, 150];
const PAIRS: usize = 100;

pub async fn far(fleet: &Fleet) {
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    for (proxy, trip) in proxies.iter().zip(TRIPS) {
        proxy.delay(Duration::from_millis(trip) / 2);
    }
    let urls: Vec<String> = proxies.iter().map(|proxy| proxy.url().to_owned()).collect();
    let quorum = connect(&urls).await;
    let mut took = Vec::new();
    for i in 0..PAIRS {
        let start = Instant::now();
        let lease = quorum.mutex(format!("bench:far:{i}")).lock().await.unwrap();
        took.push(start.elapsed());
        lease.release().await.unwrap();
    }
    let third = ping(&urls[2]).await;
    let (lock, third) = (median(took), third.as_secs_f64());
    let ratio = lock.as_secs_f64() / third;
    println!(
        "\nRTTs of {TRIPS:?} ms: an uncontended lock takes {lock:.1?}, {} × a PING of the third node",
        within(&format!("{ratio:.3}"), ratio, 1.05)
    );
}

/// A round trip with the proxy's timers, which round up to a millisecond each way.
async fn ping(url: &str) -> Duration {
    let client = redis::Client::open(url).unwrap();
    let mut node = client.get_multiplexed_async_connection().await.unwrap();
    let mut took = Vec::new();
    for _ in 0..PAIRS {
        let start = Instant::now();
        let _: String = redis::cmd("PING").query_async(&mut node).await.unwrap();
        took.push(start.elapsed());
    }
    median(took)
}

//! A hand-over is not a vote if it was not made by the node on whose connection it came.

use super::*;
use crate::support::{Kind, ServerOptions};
use quorate::{
    Lease, Renewal,
    testing::simulation::{Rule, Rules},
};

/// A hand-over is repeated in most tries, and this many are always enough.
const TRIES: usize = 12;
const MAX_TTL: Duration = Duration::from_secs(2);

/// A raw connection that listens to one channel of a server.
struct Listener(redis::Connection);

impl Listener {
    fn start(server: &Server, channel: &str) -> Self {
        let mut connection = server.conn();
        let words = redis::cmd("SSUBSCRIBE").arg(channel).get_packed_command();
        connection.send_packed_command(&words).unwrap();
        connection.recv_response().unwrap();
        Self(connection)
    }

    /// Returns true if a hand-over comes within this time.
    fn hears_hand_over(&mut self, within: Duration) -> bool {
        self.0.set_read_timeout(Some(within)).unwrap();
        while let Ok(message) = self.0.recv_response() {
            let words = Vec::<String>::from_redis_value(message).unwrap();
            if words.last().is_some_and(|text| text.starts_with("G ")) {
                return true;
            }
        }
        false
    }
}

/// The entry and the channel with which the process of this label waits on a server.
fn registration(server: &Server, label: &str) -> (String, String) {
    let all = server.cmd(&["HGETALL", "quorate:@mutex-waiters:a"]);
    let all = Vec::<(String, String)>::from_redis_value(all).unwrap();
    let is_its = |(entry, _): &&(String, String)| entry.ends_with(&format!("@{label}"));
    let (entry, place) = all.iter().find(is_its).expect("it waits here");
    let channel = place.rsplit(' ').next().unwrap();
    (entry.clone(), channel.to_owned())
}

fn votes(node: &quorate::NodeStatus) -> bool {
    node.state == quorate::NodeState::Voting
}

/// The outcome of one try.
#[derive(Debug, PartialEq)]
enum Came {
    /// The replica did not repeat the hand-over on the waiter's connection.
    Nothing,
    /// It did, and the waiter goes on waiting.
    Ignored,
    /// It did, and the waiter has the lock beside its holder.
    TwoHolders,
}

/// Node 1 forgets its lock, votes again, and hands its lock from one waiter to the next. Node 0 has just become its
/// replica, and repeats the message on the connections that it still has. The first lease stands on nodes 0 and 2.
async fn node_0_repeats_what_node_1_says(rules: Rules) -> Came {
    let options = ServerOptions::new(Kind::Redis).config("repl-diskless-sync-delay 0");
    let fleet = Fleet::start_with(3, options);
    let client = async |label| {
        let builder = builder(fleet.urls()).max_ttl(MAX_TTL).label(label);
        connect(builder.rules(rules)).await
    };
    let (a, b, c) = (client("a").await, client("b").await, client("c").await);
    fleet[1].cmd(&["FLUSHALL"]);
    let all_vote = || [&a, &b, &c].iter().all(|it| it.health().voting == 3);
    for client in [&a, &b, &c] {
        // This tells the client the guard of the node.
        let lease = client.mutex("another").lock().await.unwrap();
        lease.release().await.unwrap();
    }
    eventually("node 1 has forgotten", || a.health().voting == 2).await;
    let in_quarantine = |node: &quorate::NodeStatus| match node.state {
        quorate::NodeState::Quarantined(left) => left < ms(200),
        _ => false,
    };
    eventually("node 1 votes soon", || a.nodes().iter().any(in_quarantine)).await;
    let lock = a.mutex(NAME).ttl(MAX_TTL).renewal(Renewal::off()).lock();
    let lease: Lease = lock.await.unwrap();
    eventually("node 1 votes again", all_vote).await;
    let first = tokio::spawn(c.mutex(NAME).lock());
    let on_node_1 = || {
        let text = fleet[1].cmd(&["GET", "quorate:@mutex:a"]);
        Option::<String>::from_redis_value(text)
            .unwrap()
            .unwrap_or_default()
    };
    eventually("c has node 1", || on_node_1().contains("@c")).await;
    let mut second = tokio::spawn(b.mutex(NAME).lock());
    eventually("b waits everywhere", || {
        line::<quorate::Mutex>(&fleet[0]).len() == 2 && line::<quorate::Mutex>(&fleet[1]).len() == 1
    })
    .await;
    let (_, channel) = registration(&fleet[0], "b");
    let mut heard = Listener::start(&fleet[0], &channel);
    // The next waiter asks every S / 4, and would find out that node 0 is a replica.
    sleep(TERM / 4).await;
    let asked = calls(&fleet[0], "hset");
    eventually("b asks", || calls(&fleet[0], "hset") > asked + 1).await;
    fleet[0].replicaof(&fleet[1]);
    first.abort();
    let repeated = heard.hears_hand_over(ms(100)) && votes(&b.nodes()[0]);
    let grant = timeout(ms(200), &mut second).await;
    let came = match (repeated, grant) {
        (_, Ok(grant)) if lease.is_valid() => {
            drop(grant.unwrap().unwrap());
            Came::TwoHolders
        }
        (true, _) if lease.is_valid() => Came::Ignored,
        _ => Came::Nothing,
    };
    second.abort();
    came
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_repeated_by_a_replica_is_not_a_vote() {
    for (rules, wanted) in [
        (Rules::ALL, Came::Ignored),
        (Rules::without(Rule::PushCarriesGuard), Came::TwoHolders),
    ] {
        let mut came = Came::Nothing;
        for _ in 0..TRIES {
            came = node_0_repeats_what_node_1_says(rules).await;
            if came != Came::Nothing {
                break;
            }
        }
        assert_eq!(came, wanted);
    }
}

/// The stranger may publish, but may neither run scripts nor read keys. It has learned entries and channels.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_published_by_a_stranger_is_not_a_vote() {
    let stranger = "stranger on >secret &* +publish +spublish";
    let fleet = Fleet::start_with(3, ServerOptions::new(Kind::Redis).acl(stranger));
    for (rules, is_fooled) in [
        (Rules::ALL, false),
        (Rules::without(Rule::PushCarriesGuard), true),
    ] {
        let client = connect(builder(fleet.urls()).label("b").rules(rules)).await;
        let held = client.mutex(NAME).lock().await.unwrap();
        let waiter = tokio::spawn(client.mutex(NAME).lock());
        registered::<quorate::Mutex>(&fleet, 1).await;
        for server in fleet.iter() {
            let (entry, channel) = registration(server, "b");
            let url = server.url_with("stranger", "secret");
            let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
            for seq in 1..=3 {
                for text in [
                    format!("G {entry} {seq} 9007199254740991 86400000"),
                    format!("G {entry} {seq} 9007199254740991 30000 3 3 tests 100 id"),
                    format!("N {entry} 86400000"),
                ] {
                    for publish in ["PUBLISH", "SPUBLISH"] {
                        let words = redis::cmd(publish).arg(&channel).arg(&text).to_owned();
                        words.query::<u64>(&mut connection).unwrap();
                    }
                }
            }
        }
        sleep(ms(300)).await;
        assert_eq!((waiter.is_finished(), held.is_valid()), (is_fooled, true));
        let last = held.token();
        held.release().await.unwrap();
        let next = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
        assert!(is_fooled || (next.token() > last && next.validity() <= ms(10_000)));
        drop(next);
        nothing_is_left(&fleet);
    }
}

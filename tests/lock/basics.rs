//! The main use on every kind of server and by every way to reach one: N masters, one holder at a time, growing tokens,
//! and a refusal that names the holder. The tests run on a mutex, and on a semaphore with a limit of one.

use std::time::Duration;

use crate::exclusive::Exclusive;
use crate::support::{Fleet, Kind, Server, ServerOptions};
use quorate::{Builder, Error, NodeState, Quorum};

const TTL: Duration = Duration::from_secs(2);

fn builder() -> Builder {
    Quorum::builder()
        .fleet("tests") // some reach the masters through proxies
        .max_ttl(TTL)
        .restart_margin(Duration::from_millis(100))
}

on_both! {
    threads:
        any_number_of_masters_of_each_kind,
        a_majority_is_enough_and_needed,
        by_unix_socket_password_user_and_database,
        prefixes_share_nothing;
    thread:
        one_kind_beside_the_other_on_a_current_thread,
        in_memory;
}

/// The main use of a deployment, by two of its clients.
async fn the_main_job<E: Exclusive>(connect: impl AsyncFn(&str) -> Quorum) {
    let (one, two) = (connect("one").await, connect("two").await);
    let (ours, theirs) = (E::of(&one, "invoice:42"), E::of(&two, "invoice:42"));

    let lease = ours.lock().await.unwrap();
    assert_eq!(lease.name(), "invoice:42");
    assert!(lease.is_valid() && lease.validity() <= TTL);
    assert!(theirs.try_lock().await.unwrap().is_none());
    assert!(theirs.try_run(async |_| ()).await.unwrap().is_none());
    assert!(
        ours.try_lock().await.unwrap().is_none(),
        "not even by its own client"
    );
    assert!(
        E::of(&two, "invoice:43")
            .try_lock()
            .await
            .unwrap()
            .is_some(),
        "another name"
    );

    lease.extend().await.unwrap();
    let mut last = lease.token();
    lease.release().await.unwrap();
    let wait = Duration::from_secs(1);
    for i in 0..10 {
        let mutex = if i % 2 == 0 { &theirs } else { &ours };
        let lease = mutex.clone().wait_timeout(wait).lock().await.unwrap();
        assert!(lease.token() > last, "{} after {last}", lease.token());
        last = lease.token();
        drop(lease);
    }
    let token = theirs
        .clone()
        .wait_timeout(wait)
        .run(async |watch| watch.token())
        .await
        .unwrap();
    assert!(token > last);

    if E::EVICTS {
        an_operator_looks_and_evicts(&one, &two).await;
    }
    assert_eq!(one.shutdown().await, [""; 0]);
    assert!(matches!(ours.lock().await, Err(Error::Closed)));
    assert!(theirs.try_lock().await.unwrap().is_some(), "others go on");
}

/// An operator sees the holder of a mutex, and can evict it.
async fn an_operator_looks_and_evicts(one: &Quorum, two: &Quorum) {
    let wait = Duration::from_secs(1);
    let lease = one.mutex("invoice:42").wait_timeout(wait).lock().await;
    let lease = lease.unwrap();
    let seen = two.inspect("invoice:42").await.unwrap();
    let holder = seen.holder().expect("a majority knows");
    assert_eq!(holder.label, "one");
    assert!(
        holder
            .remaining
            .is_some_and(|left| left <= TTL && left > Duration::ZERO)
    );
    // A node that our request reached late may have granted the refused request, and taken that grant back.
    assert!(seen.newest_token() >= Some(lease.token()));
    assert_eq!(seen.nodes.len(), two.nodes().len());

    assert!(two.evict("invoice:42").await.unwrap());
    let next = two
        .mutex("invoice:42")
        .try_lock()
        .await
        .unwrap()
        .expect("evicted");
    assert!(next.token() > lease.token());
    assert!(
        matches!(lease.release().await, Err(Error::Lost(_))),
        "it was not ours any more"
    );
    next.release().await.unwrap();
}

async fn with_urls<E: Exclusive>(urls: &[String]) {
    let connect = async |label: &str| {
        let quorum = builder().label(label).nodes(urls).connect().await.unwrap();
        quorum.bootstrap_forced().await.unwrap();
        assert!(
            quorum
                .nodes()
                .iter()
                .all(|node| node.state == NodeState::Voting)
        );
        quorum
    };
    the_main_job::<E>(connect).await;
}

async fn any_number_of_masters_of_each_kind<E: Exclusive>() {
    for kind in Kind::ALL {
        for n in [1, 2, 3, 4, 5, 7] {
            let fleet = Fleet::start(n, kind);
            with_urls::<E>(&fleet.urls()).await;
            // The locks were released and have not expired.
            let left = fleet.leftover_locks_after(TTL / 2, "quorate");
            assert_eq!(left, [""; 0], "{kind:?}, {n}");
        }
    }
}

/// N - Q masters may be dead, and not one more.
async fn a_majority_is_enough_and_needed<E: Exclusive>() {
    for n in 1..=5 {
        let fleet = Fleet::start(n, Kind::ALL[n % 2]);
        // All remaining nodes must answer in time. A dead node is noticed by its connection.
        let builder = builder().node_timeout(Duration::from_secs(5));
        let quorum = builder.nodes(fleet.urls()).connect().await.unwrap();
        quorum.bootstrap_forced().await.unwrap();
        let spare = (n - 1) / 2;
        assert_eq!(quorum.health().spare, spare);
        fleet[..spare].iter().for_each(Server::kill9);
        let lease = E::of(&quorum, "a").lock().await.unwrap();
        lease.release().await.unwrap();
        fleet[spare].kill9();
        let error = E::of(&quorum, "a").lock().await.unwrap_err();
        assert!(matches!(error, Error::NoQuorum(_)), "{n}: {error}");
    }
}

async fn one_kind_beside_the_other_on_a_current_thread<E: Exclusive>() {
    let (redis, valkey) = (Fleet::start(2, Kind::Redis), Fleet::start(1, Kind::Valkey));
    with_urls::<E>(&[redis.urls(), valkey.urls()].concat()).await;
}

async fn by_unix_socket_password_user_and_database<E: Exclusive>() {
    for kind in Kind::ALL {
        let user = "locker on >secret ~quorate:* &quorate:* +@all";
        let fleet = Fleet::start_with(5, ServerOptions::new(kind).password("word").acl(user));
        let urls = [
            fleet[0].unix_url(),
            fleet[1].url(),
            fleet[2].url_with("default", "word"),
            fleet[3].url_with("locker", "secret"),
            format!("{}/3", fleet[4].url()),
        ];
        with_urls::<E>(&urls).await;
        let clients = urls.iter().map(|url| redis::Client::open(&**url).unwrap());
        let quorum = builder().nodes(clients).connect().await.unwrap();
        assert!(
            E::of(&quorum, "b").try_lock().await.unwrap().is_some(),
            "as redis::Client"
        );
    }
}

async fn in_memory<E: Exclusive>() {
    let nodes: [quorate::MemoryNode; 5] = std::array::from_fn(|_| quorate::MemoryNode::new());
    let connect = async |label: &str| {
        let quorum = builder()
            .label(label)
            .nodes(&nodes)
            .connect()
            .await
            .unwrap();
        quorum.bootstrap_forced().await.unwrap();
        quorum
    };
    the_main_job::<E>(connect).await;
}

/// Deployments with different prefixes share nothing, not even where one prefix begins with the other.
async fn prefixes_share_nothing<E: Exclusive>() {
    let fleet = Fleet::start(3, Kind::Redis);
    let mut leases = Vec::new();
    for prefix in ["quorate", "quorate:a", "a", "a:quorate"] {
        let quorum = builder()
            .key_prefix(prefix)
            .nodes(fleet.urls())
            .connect()
            .await
            .unwrap();
        quorum
            .bootstrap_forced()
            .await
            .unwrap_or_else(|error| panic!("{prefix}: {error}"));
        leases.push(E::of(&quorum, "a").try_lock().await.unwrap().expect(prefix));
    }
    assert!(leases.iter().all(quorate::Lease::is_valid));
}

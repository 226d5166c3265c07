//! Admission (protocol §2) on real servers: which masters vote, and that no client can stop the others. The tests
//! include the cases in which format 1 stopped a healthy fleet or gave a lock to two holders.

use std::time::{Duration, Instant};

use crate::support::{Fleet, HANG, Kind, Server, ServerOptions};
use quorate::{Builder, Error, NodeState, Quorum};
use tokio::time::sleep;

const MAX_TTL: Duration = Duration::from_secs(2);
const MARGIN: Duration = Duration::from_millis(100);
/// 1.01 max_ttl + margin.
const Z: Duration = Duration::from_millis(2_120);
/// Time for reconnecting and the next handshake, on a busy machine.
const SLACK: Duration = Duration::from_secs(8);
/// A client that met a node delays others for 3 s after its last visit, and it visits once a second.
const VISITED: Duration = Duration::from_secs(3 + 1);

/// The node timeout of a client that may not fail once while only a majority answers, on a busy machine.
const PATIENT: Duration = Duration::from_secs(3);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn builder() -> Builder {
    Quorum::builder()
        .max_ttl(MAX_TTL)
        .restart_margin(MARGIN)
        .node_timeout(ms(300))
}

/// A client of the same fleet that reaches only this server.
fn alone_with(server: &Server) -> Builder {
    builder()
        .fleet("tests")
        .node(server.url())
        .nodes(["redis://127.0.0.1:1", "redis://127.0.0.1:2"])
}

fn ours(fleet: &Fleet) -> Builder {
    builder().fleet("tests").nodes(fleet.urls())
}

async fn admitted(builder: Builder) -> Quorum {
    let quorum = builder.connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    quorum
}

fn voting(quorum: &Quorum) -> usize {
    quorum.health().voting
}

async fn until(what: &str, within: Duration, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + within;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {within:?}: {what}");
        sleep(ms(5)).await;
    }
}

fn record(server: &Server) -> Vec<String> {
    let text: Option<String> =
        redis::from_redis_value(server.cmd(&["GET", "quorate:boot"])).unwrap();
    let text = text.unwrap_or_default();
    text.split(' ').map(str::to_owned).collect()
}

fn says(error: &Error, words: &[&str]) {
    let report = error.report().map(ToString::to_string);
    let text = format!("{error} {}", report.unwrap_or_default());
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

/// Locks and releases until it is told to stop. No error is allowed.
async fn work(quorum: Quorum, mut stop: tokio::sync::oneshot::Receiver<()>) -> usize {
    let mut done = 0;
    while stop.try_recv().is_err() {
        let lease = quorum.mutex("work").lock().await.unwrap();
        lease.release().await.unwrap();
        done += 1;
        sleep(ms(5)).await;
    }
    done
}

// ---- a stranger's record binds nobody ---------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_huge_max_ttl_at_an_emptied_node_does_not_stop_the_fleet() {
    for kind in Kind::ALL {
        let fleet = Fleet::start(3, kind);
        let healthy = admitted(ours(&fleet).node_timeout(PATIENT)).await;
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let worker = tokio::spawn(work(healthy.clone(), stopped));

        // One client in a crash loop sees the whole fleet, and one sees only the emptied node.
        fleet[0].kill9();
        fleet[0].start_again();
        let start = Instant::now();
        while start.elapsed() < Z {
            let day = Duration::from_secs(24 * 3600);
            let lone = alone_with(&fleet[0]).max_ttl(day).connect_lazy().unwrap();
            let error = ours(&fleet).max_ttl(day).connect().await.unwrap_err();
            says(
                &error,
                &["max_ttl is 86400.0 s here and 2.0 s in the fleet"],
            );
            sleep(ms(100)).await;
            drop(lone);
        }
        until("all vote again", Z + SLACK, || voting(&healthy) == 3).await;
        stop.send(()).unwrap();
        assert!(worker.await.unwrap() > 20);
        assert_eq!(record(&fleet[0])[3], "2000");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_alone_with_a_node_witnesses_nothing() {
    let fleet = Fleet::start(3, Kind::Redis);
    let ttl = ms(4_000);
    let healthy = admitted(ours(&fleet).max_ttl(ttl)).await;
    let lease = healthy.mutex("a").ttl(ttl).lock().await.unwrap();
    // One node loses the lease while its fleet does not see the node. A client with a shorter max_ttl watches the node
    // alone for longer than that client's own quarantine.
    fleet[0].kill9();
    fleet[0].start_again();
    let lone = alone_with(&fleet[0]).connect_lazy().unwrap();
    sleep(Z + ms(1_500)).await;
    assert_eq!(voting(&lone), 0, "{lone:?}");
    let seen = record(&fleet[0]);
    assert!(seen[3] == "4000" || seen[9] == "0", "{seen:?}");
    assert!(lease.is_valid());
}

/// Two losses and a partition. A client sees only the two nodes that lost their memory, and asks for less. The
/// quarantine of the first node is still that of the fleet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_a_shorter_max_ttl_keeps_the_fleets_quarantine() {
    let fleet = Fleet::start(3, Kind::Redis);
    let urls = fleet.urls();
    let ttl = ms(4_000);
    let healthy = admitted(ours(&fleet).max_ttl(ttl)).await;
    let lease = healthy.mutex("a").ttl(ttl).lock().await.unwrap();
    let lost = Instant::now();
    fleet[0].kill9();
    fleet[0].start_again();
    until("the first is vouched for", SLACK, || {
        let seen = record(&fleet[0]);
        seen.len() == 10 && seen[3] == "4000" && seen[7] == "1"
    })
    .await;
    // The holder is not seen any more.
    lease.abandon();
    healthy.shutdown().await;
    fleet[1].kill9();
    fleet[1].start_again();
    let short = builder()
        .fleet("tests")
        .nodes([&*urls[0], &*urls[1], "redis://127.0.0.1:1"])
        .connect()
        .await
        .unwrap();
    let locked = short.mutex("a").wait_timeout(ms(20_000)).lock().await;
    assert!(locked.is_ok(), "{locked:?}");
    let took = lost.elapsed();
    assert!(took >= ms(4_140), "1.01 · 4 s + M: it came after {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_smaller_restart_margin_does_not_shorten_the_quarantine() {
    let fleet = Fleet::start(3, Kind::Valkey);
    let healthy = admitted(ours(&fleet).restart_margin(ms(6_000))).await;
    fleet[1].restart_empty();
    let start = Instant::now();
    let careless = ours(&fleet).restart_margin(Duration::ZERO);
    let careless = careless.connect().await.unwrap();
    until("all vote again", HANG, || {
        voting(&healthy) == 3 && voting(&careless) == 3
    })
    .await;
    let took = start.elapsed();
    // 1.01 · 2 s, and 6 s.
    assert!(took >= ms(8_000), "M is the fleet's: {took:?}");
    // A client that asks for more is refused, with the reason.
    let error = ours(&fleet).restart_margin(ms(9_000)).connect().await;
    says(
        &error.unwrap_err(),
        &["restart_margin is 9.0 s here and 6.0 s in the fleet"],
    );
}

// ---- other fleets ----------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_lists_that_share_masters() {
    for kind in Kind::ALL {
        let servers = Fleet::start(4, kind);
        let urls = servers.urls();
        let list = |nodes: [usize; 3]| builder().nodes(nodes.map(|i| urls[i].clone()));
        let abc = admitted(list([0, 1, 2])).await;
        let held = abc.mutex("a").lock().await.unwrap();
        let error = list([0, 1, 3]).connect().await.unwrap_err();
        assert!(matches!(error, Error::NoQuorum(_)), "{error:?}");
        let words = [
            "another fleet",
            abc.fleet(),
            "the same masters",
            "QUORATE_FLEET",
        ];
        says(&error, &words);
        let abd = list([3, 1, 0]).connect_lazy().unwrap();
        assert!(abd.bootstrap_forced().await.is_err(), "not even by force");
        assert!(abd.mutex("a").try_lock().await.is_err());
        // In another order the list is the same.
        let cba = list([2, 1, 0]).connect().await.unwrap();
        assert!(cba.mutex("a").try_lock().await.unwrap().is_none());
        assert!(held.is_valid() && voting(&abc) == 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_masters_looked_at_one_by_one_come_to_vote_without_bootstrap() {
    for kind in Kind::ALL {
        let fleet = Fleet::start(3, kind);
        for url in fleet.urls() {
            let alone = builder().node(url).connect_lazy().unwrap();
            until("it is met", SLACK, || {
                matches!(alone.nodes()[0].state, NodeState::Quarantined(_))
            })
            .await;
            alone.shutdown().await;
        }
        let quorum = ours(&fleet).connect().await.unwrap();
        until("all vote", Z + VISITED + SLACK, || voting(&quorum) == 3).await;
        let lease = quorum.mutex("a").try_lock().await.unwrap();
        lease.expect("nobody has it").release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_never_voted_stays_only_while_its_clients_are_there() {
    let fleet = Fleet::start(3, Kind::Valkey);
    let urls = fleet.urls();
    let visitor = builder()
        .restart_margin(Duration::from_secs(3600))
        .nodes(&urls[..2])
        .connect()
        .await
        .unwrap();
    let record = || record(&fleet[0])[6].clone();
    let before = record();
    let quorum = ours(&fleet).connect_lazy().unwrap();
    let taken = || {
        let nodes = quorum.nodes();
        let text = "clients of that fleet are connected to it";
        let taken =
            |state: &NodeState| matches!(state, NodeState::Refused(why) if why.contains(text));
        nodes[..2].iter().all(|node| taken(&node.state))
    };
    until("it says why", SLACK, taken).await;
    sleep(ms(5_000)).await;
    assert!(taken(), "{quorum:?}");
    assert_eq!(record(), before);
    visitor.shutdown().await;
    until("all vote", Z + VISITED + SLACK, || voting(&quorum) == 3).await;
    let lease = quorum.mutex("a").lock().await.unwrap();
    lease.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stray_list_at_an_emptied_node_does_not_stop_the_fleet() {
    let servers = Fleet::start(4, Kind::Redis);
    let urls = servers.urls();
    let list = |nodes: [usize; 3]| builder().nodes(nodes.map(|i| urls[i].clone()));
    let abc = admitted(list([0, 1, 2]).node_timeout(PATIENT)).await;
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let worker = tokio::spawn(work(abc.clone(), stopped));
    servers[0].kill9();
    servers[0].start_again();
    let start = Instant::now();
    while start.elapsed() < Z + ms(500) {
        // This client sees a and d, which nobody uses, and lists b under an address where no server is.
        let stray = builder()
            .nodes([&*urls[0], &*urls[3], "redis://127.0.0.1:1"])
            .connect_lazy()
            .unwrap();
        sleep(ms(200)).await;
        assert!(stray.mutex("work").try_lock().await.is_err());
    }
    until("all vote again", Z + SLACK, || voting(&abc) == 3).await;
    stop.send(()).unwrap();
    assert!(worker.await.unwrap() > 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_of_three_masters_in_a_fleet_of_five() {
    for living in [false, true] {
        let fleet = Fleet::start(5, Kind::Redis);
        let five = admitted(ours(&fleet)).await;
        fleet[4].kill9();
        // This client reaches the emptied node, and lists two addresses where no server is.
        fleet[4].start_again();
        let three = alone_with(&fleet[4]).connect_lazy().unwrap();
        sleep(ms(150)).await;
        if !living {
            drop(three);
        } else {
            tokio::spawn(async move {
                sleep(Z + SLACK).await;
                drop(three);
            });
        }
        until("all vote again", Z + SLACK, || voting(&five) == 5).await;
        assert_eq!(record(&fleet[4])[1], "5");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_voter_stops_a_client_until_it_goes() {
    let fleet = Fleet::start(3, Kind::Valkey);
    let quorum = admitted(ours(&fleet)).await;
    let boot = record(&fleet[2]);
    let (mut foreign, mut open) = (boot.clone(), boot[..5].to_vec());
    foreign[2] = "strangers".into();
    open[2] = "strangers".into();
    open.push(boot[6].clone());
    fleet[2].cmd(&["SET", "quorate:boot", &foreign.join(" ")]);
    fleet[2].cmd(&["SET", "quorate:open", &open.join(" ")]);
    until("nothing is counted", SLACK, || voting(&quorum) == 0).await;
    let error = quorum.mutex("a").try_lock().await.unwrap_err();
    let port = fleet[2].port().to_string();
    says(
        &error,
        &[
            "another fleet",
            "\"strangers\"",
            "\"tests\"",
            &port,
            "DEL quorate:boot",
        ],
    );
    fleet[2].cmd(&["DEL", "quorate:boot", "quorate:open"]);
    until("two vote", SLACK, || voting(&quorum) >= 2).await;
    assert!(quorum.mutex("a").try_lock().await.unwrap().is_some());
    until("all vote", Z + SLACK, || voting(&quorum) == 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_format_is_refused_by_name_and_goes_as_the_error_says() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let fleet = Fleet::start(3, kind);
        for (format, rest) in [("1", "id 30000 40000 0"), ("2", "id 1 1 40000")] {
            let old = |run: &str| match format {
                "1" => format!("1 3 {run}/00000000/-1 {rest}"),
                _ => format!("2 3 tests 2000 100 {run}/00000000/-1 {rest}"),
            };
            for server in fleet.iter() {
                let run = server.info("run_id").unwrap();
                server.cmd(&["SET", "quorate:boot", &old(&run)]);
                server.cmd(&["SET", "quorate:open", "2000 2 3 tests 100 id"]);
            }
            let before: Vec<_> = fleet.iter().map(record).collect();
            let error = ours(&fleet).connect().await.unwrap_err();
            let named = format!("format {format}");
            says(
                &error,
                &[&named, "format 3", "one version", "DEL quorate:boot"],
            );
            let after: Vec<_> = fleet.iter().map(record).collect();
            assert_eq!(before, after, "a refused master is left alone");

            for server in fleet.iter() {
                server.cmd(&["DEL", "quorate:boot", "quorate:open"]);
            }
            let quorum = admitted(ours(&fleet)).await;
            assert_eq!(record(&fleet[0])[0], "3");
            assert!(quorum.mutex("a").try_lock().await.unwrap().is_some());
            drop(quorum);

            // After a restart a record of that format belongs to nobody.
            for server in fleet.iter() {
                server.cmd(&["SET", "quorate:boot", &old("another")]);
            }
            admitted(ours(&fleet)).await;
        }
    }
}

// ---- restarts of all -------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn masters_back_from_their_disks_keep_a_longer_max_ttl() {
    let options = ServerOptions::new(Kind::Redis).appendonly();
    let fleet = Fleet::start_with(3, options);
    let ttl = ms(6_000);
    let healthy = admitted(ours(&fleet).max_ttl(ttl)).await;
    let _lease = healthy.mutex("a").ttl(ttl).lock().await.unwrap();
    drop(healthy);
    for server in fleet.iter() {
        server.cmd(&["DEL", "quorate:@mutex:a"]);
        server.shutdown();
    }
    for server in fleet.iter() {
        server.start_again();
    }
    let start = Instant::now();
    let short = ours(&fleet).max_ttl(ms(1_000)).connect().await.unwrap();
    let locked = short.mutex("a").wait_timeout(ms(20_000)).lock().await;
    let took = start.elapsed();
    assert!(locked.is_ok(), "{locked:?}");
    assert!(took >= ttl, "it came after {took:?}");
    assert_eq!(record(&fleet[0])[3], "6000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bootstrap_after_a_power_cut() {
    let long = || builder().fleet("tests").max_ttl(ms(20_000));
    for old in [false, true] {
        let fleet = Fleet::start(3, Kind::Redis);
        let living = admitted(long().nodes(fleet.urls())).await;
        let lease = living.mutex("a").ttl(ms(20_000)).lock().await.unwrap();
        for server in fleet.iter() {
            match old {
                true => {
                    server.save_snapshot();
                    server.restart_with_snapshot();
                }
                false => server.restart_empty(),
            }
        }
        // An operator believes that they are new.
        let script = long().nodes(fleet.urls()).connect().await.unwrap();
        let error = script.bootstrap().await.unwrap_err();
        says(&error, &["not new", "they vote by themselves in"]);
        assert!(script.mutex("a").try_lock().await.is_err());
        assert!(lease.is_valid());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bootstrap_admits_only_new_masters() {
    let long = || builder().fleet("tests").max_ttl(ms(30_000));
    let fleet = Fleet::start(3, Kind::Valkey);
    let quorum = long().nodes(fleet.urls()).connect().await.unwrap();
    fleet[1].cmd(&["HSET", "quorate:c0", "@mutex:a", "1"]);
    let error = quorum.bootstrap().await.unwrap_err();
    let port = fleet[1].port().to_string();
    says(
        &error,
        &[&port, "holds counters", "(\"a\" is one of them)", "not new"],
    );
    fleet[1].cmd(&["DEL", "quorate:c0"]);
    // Foreign keys do not matter, no matter how many there are.
    let fill = "for i = 1, 200000 do redis.call('SET', 'foreign:' .. i, i) end";
    fleet[1].cmd(&["EVAL", fill, "0"]);
    let start = Instant::now();
    quorum.bootstrap().await.unwrap();
    // This is far below the quarantine of 30.4 s.
    assert!(start.elapsed() < ms(10_000), "{:?}", start.elapsed());
    let start = Instant::now();
    quorum.bootstrap().await.expect("all vote: it is done");
    // A few round trips, on a busy machine too.
    assert!(start.elapsed() < ms(2_000), "{:?}", start.elapsed());

    fleet[0].restart_empty();
    until("it is quarantined", SLACK, || {
        matches!(quorum.nodes()[0].state, NodeState::Quarantined(_))
    })
    .await;
    let error = quorum.bootstrap().await.unwrap_err();
    says(
        &error,
        &["votes already", "not new", "they vote by themselves in"],
    );
    fleet[1].sigstop();
    let all = long().connect_timeout(ms(600)).nodes(fleet.urls());
    let all = all.connect_lazy().unwrap();
    let error = all.bootstrap_forced().await.unwrap_err();
    says(&error, &[&port]);
    fleet[1].sigcont();
}

// ---- another address -------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_replaced_at_a_new_address_without_stopping() {
    let servers = Fleet::start(4, Kind::Redis);
    let urls = servers.urls();
    let list = |nodes: [usize; 3]| builder().nodes(nodes.map(|i| urls[i].clone()));
    let before = admitted(list([0, 1, 2])).await;
    let held = before.mutex("a").lock().await.unwrap();
    servers[2].shutdown();
    // The new list, with the list word of the old one.
    let after = list([0, 1, 3])
        .fleet(before.fleet())
        .connect()
        .await
        .unwrap();
    assert!(after.mutex("a").try_lock().await.unwrap().is_none());
    // Two of three nodes were enough to connect, so the new one may not have been met yet.
    let is_new = || matches!(after.nodes()[2].state, NodeState::Quarantined(_));
    until("the new one is in quarantine", SLACK, is_new).await;
    let lease = after.mutex("b").lock().await.unwrap();
    until("the new one votes", Z + SLACK, || voting(&after) == 3).await;
    assert!(held.is_valid() && lease.is_valid() && voting(&before) == 2);
}

// ---- raising max_ttl -------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raise_that_broke_off_half_way() {
    let fleet = Fleet::start(3, Kind::Redis);
    let healthy = admitted(ours(&fleet)).await;
    let before = record(&fleet[0]);
    let [format, n, list, run, id] = [0, 1, 2, 5, 6].map(|i| before[i].as_str());
    let admit = include_str!("../../src/node/kinds/admission/admit.lua");
    let args = [format, n, list, run, id, "8000", "100", "8180", "raise"];
    let call = ["EVAL", admit, "2", "quorate:boot", "quorate:open"];
    let raised = fleet[0].cmd(&[&call[..], &args].concat());
    assert_eq!(raised, redis::Value::Int(1));

    // Nobody may use the greater max_ttl before all nodes have it.
    let greater = || ours(&fleet).max_ttl(ms(8_000));
    let early = greater().connect().await;
    if let Ok(early) = &early {
        let lease = early.mutex("a").ttl(ms(8_000)).try_lock().await;
        let all_have_it = fleet.iter().all(|server| record(server)[3] == "8000");
        assert!(all_have_it || lease.is_err(), "{lease:?}");
    }
    let again = greater().connect_lazy().unwrap();
    let start = Instant::now();
    while let Err(error) = again.bootstrap().await {
        // More than three times the greater quarantine, 8.18 s.
        assert!(start.elapsed() < Duration::from_secs(30), "{error}");
        sleep(ms(500)).await;
    }
    let lease = again.mutex("a").ttl(ms(8_000)).try_lock().await.unwrap();
    assert!(lease.is_some());
    until("who asks for less goes on", SLACK, || voting(&healthy) == 3).await;
}

// A server whose scripts may use only the keys in KEYS refuses the handshake, not only the first waiter's request. The
// greeting and each handshake call INFO once, and PTTL once: here on a key that is not in KEYS.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_handshake_reads_a_key_that_is_not_in_keys() {
    let fleet = Fleet::start(1, Kind::Redis);
    fleet[0].cmd(&["CONFIG", "RESETSTAT"]);
    builder().nodes(fleet.urls()).connect().await.unwrap();
    let stats = fleet[0].cmd(&["INFO", "commandstats"]);
    let stats: String = redis::FromRedisValue::from_redis_value(stats).unwrap();
    let calls = |command| {
        let (_, rest) = stats
            .split_once(&format!("cmdstat_{command}:calls="))
            .unwrap();
        rest.split(',').next().unwrap().parse::<u32>().unwrap()
    };
    assert!(calls("info") >= 2, "{stats}");
    assert_eq!(calls("pttl"), calls("info"), "{stats}");
}

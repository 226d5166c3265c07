//! Many contenders for the same name, with this library and with `consul lock`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex},
};

use crate::support::{Slowest, Stalls};
use futures::future::join_all;
use quorate::{FencingToken, Lease};

use super::*;

/// Each holder inside a section is a file, so that any program can count them.
#[derive(Clone)]
struct Witness {
    inside: PathBuf,
    log: PathBuf,
    /// Created when the full number of holders was inside at once.
    full: PathBuf,
    limit: usize,
}

impl Witness {
    fn new(directory: &Path, limit: usize) -> Self {
        let [inside, log, full] = ["inside", "log", "full"].map(|name| directory.join(name));
        fs::create_dir(&inside).unwrap();
        Self {
            inside,
            log,
            full,
            limit,
        }
    }

    /// A section as a shell script: it enters, counts the holders inside, and leaves. The first sections wait for
    /// others, for at most five seconds, because a grant may take longer than a section.
    fn script(&self) -> String {
        format!(
            "f=$(mktemp {}/XXXXXX); n=$(ls {0} | wc -l); echo $n >>{}; [ $n -lt {} ] || touch {full}; \
             i=0; while sleep 0.02; [ ! -e {full} ] && [ $i -lt 250 ]; do i=$((i + 1)); done; rm $f",
            self.inside.display(),
            self.log.display(),
            self.limit,
            full = self.full.display(),
        )
    }

    async fn section(&self) {
        let script = self.script();
        let status = tokio::process::Command::new("sh")
            .args(["-c", &script])
            .status();
        assert!(status.await.unwrap().success());
    }

    /// The number of holders inside, each time that a holder entered.
    fn counts(&self) -> Vec<usize> {
        let log = fs::read_to_string(&self.log).unwrap();
        log.lines()
            .map(|line| line.trim().parse().unwrap())
            .collect()
    }
}

/// 40 tasks of 8 clients, and 10 processes of `consul lock -n 3`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_contenders_are_never_more_than_the_limit() {
    let agent = Agent::start();
    let directory = tempfile::tempdir().unwrap();
    let witness = Witness::new(directory.path(), 3);
    let strangers: Vec<_> = (0..10)
        .map(|_| {
            let mut command = agent.consul(&["lock", "-n", "3", "pool"]);
            command.arg(witness.script()).stdout(Stdio::null());
            tokio::process::Command::from(command).spawn().unwrap()
        })
        .collect();
    let tokens: Arc<Mutex<Vec<FencingToken>>> = Arc::default();
    let mut tasks = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..8 {
        let consul = connect(&agent).await;
        for _ in 0..5 {
            let (pool, witness, tokens) = (
                consul.semaphore("pool", 3),
                witness.clone(),
                Arc::clone(&tokens),
            );
            tasks.push(tokio::spawn(async move {
                for _ in 0..3 {
                    let lease = pool.acquire().await.unwrap();
                    tokens.lock().unwrap().push(lease.token());
                    witness.section().await;
                    assert!(lease.is_valid());
                    lease.release().await.unwrap();
                }
            }));
        }
        clients.push(consul);
    }
    for task in join_all(tasks).await {
        task.unwrap();
    }
    for mut stranger in strangers {
        assert!(stranger.wait().await.unwrap().success());
    }
    let counts = witness.counts();
    assert_eq!(counts.len(), 40 * 3 + 10);
    let most = counts.iter().max().unwrap();
    assert_eq!(*most, 3, "also as many as may");
    let mut tokens = tokens.lock().unwrap().clone();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 120, "each has its own");
    for consul in clients {
        assert!(consul.shutdown().await.is_empty());
    }
    nothing_is_left(&agent).await;
}

/// One holder at a time, each with a greater token than the one before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_contenders_for_a_lock_are_one_at_a_time_with_growing_tokens() {
    let agent = Agent::start();
    let directory = tempfile::tempdir().unwrap();
    let witness = Witness::new(directory.path(), 1);
    let strangers: Vec<_> = (0..5)
        .map(|_| {
            let mut command = agent.consul(&["lock", "one"]);
            command.arg(witness.script()).stdout(Stdio::null());
            tokio::process::Command::from(command).spawn().unwrap()
        })
        .collect();
    let tokens: Arc<Mutex<Vec<FencingToken>>> = Arc::default();
    let (mut tasks, mut clients) = (Vec::new(), Vec::new());
    for _ in 0..9 {
        let consul = connect(&agent).await;
        for _ in 0..5 {
            let (mutex, witness, tokens) =
                (consul.mutex("one"), witness.clone(), Arc::clone(&tokens));
            tasks.push(tokio::spawn(async move {
                let lease = mutex.lock().await.unwrap();
                tokens.lock().unwrap().push(lease.token());
                witness.section().await;
                lease.release().await.unwrap();
            }));
        }
        clients.push(consul);
    }
    for task in join_all(tasks).await {
        task.unwrap();
    }
    for mut stranger in strangers {
        assert!(stranger.wait().await.unwrap().success());
    }
    let counts = witness.counts();
    assert_eq!(counts, [1].repeat(50));
    let tokens = tokens.lock().unwrap().clone();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    for consul in clients {
        consul.shutdown().await;
    }
    nothing_is_left(&agent).await;
}

#[tokio::test]
async fn consul_lock_holds_while_we_wait_and_the_reverse() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    for limit in [None, Some(2)] {
        let name = "jobs/both";
        let n = limit.map_or_else(|| "1".to_owned(), |n: u32| n.to_string());
        let lock = |script: &str| {
            let mut command = agent.consul(&["lock", "-n", &n, name]);
            command
                .arg(script)
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            tokio::process::Command::from(command)
        };
        let take = || async {
            match limit {
                None => consul.mutex(name).try_lock().await.unwrap(),
                Some(limit) => consul.semaphore(name, limit).try_acquire().await.unwrap(),
            }
        };
        // Processes of `consul lock` hold the whole lock or semaphore until this file is there.
        let directory = tempfile::tempdir().unwrap();
        let go = directory.path().join("go");
        let script = format!("until [ -e {} ]; do sleep 0.1; done", go.display());
        let mut theirs: Vec<_> = (0..limit.unwrap_or(1))
            .map(|_| lock(&script).spawn().unwrap())
            .collect();
        // This only looks. An attempt to take it would make them rest for seconds.
        // Up to three processes of Consul have to start.
        until("they all hold it", 2 * SOON, async || {
            let record = agent.pairs(&format!("{name}/.lock"));
            let holders = record.first().map_or(0, |record| match limit {
                None => usize::from(record.session.is_some()),
                Some(_) => record.value.matches("true").count(),
            });
            holders == limit.unwrap_or(1) as usize
        })
        .await;
        assert!(take().await.is_none());
        let error = match limit {
            None => consul
                .mutex(name)
                .wait_timeout(ms(200))
                .lock()
                .await
                .unwrap_err(),
            Some(limit) => {
                let pool = consul.semaphore(name, limit).wait_timeout(ms(200));
                pool.acquire().await.unwrap_err()
            }
        };
        assert!(
            error.to_string().contains("Consul lock for 'until [ -e "),
            "{error}"
        );
        fs::write(&go, "").unwrap();
        let ours: Lease = match limit {
            None => consul.mutex(name).lock().await.unwrap(),
            Some(limit) => consul
                .semaphore(name, limit)
                .acquire_many(limit)
                .await
                .unwrap(),
        };
        for their in &mut theirs {
            let ended = their.try_wait().unwrap();
            // The command reports that the lock is free before it ends.
            assert!(ended.is_none_or(|status| status.success()));
        }
        // Our clients hold the whole lock or semaphore.
        let mark = tempfile::NamedTempFile::new().unwrap();
        let mut waits = lock(&format!("echo in >{}", mark.path().display()))
            .spawn()
            .unwrap();
        tokio::time::sleep(ms(1_500)).await;
        assert_eq!(fs::read_to_string(mark.path()).unwrap(), "");
        ours.release().await.unwrap();
        assert!(waits.wait().await.unwrap().success());
        assert_eq!(fs::read_to_string(mark.path()).unwrap(), "in\n");
        for mut their in theirs {
            assert!(their.wait().await.unwrap().success());
        }
        nothing_is_left(&agent).await;
    }
    consul.shutdown().await;
}

/// Waiters are served in the order in which they asked, across processes.
#[tokio::test]
async fn waiters_are_served_in_the_order_in_which_they_asked() {
    let agent = Agent::start();
    for limit in [None, Some(1)] {
        let clients = join_all((0..10).map(|_| connect(&agent))).await;
        let take = |n: usize| {
            let consul = clients[n].clone();
            async move {
                match limit {
                    None => consul.mutex("line").lock().await.unwrap(),
                    Some(limit) => consul.semaphore("line", limit).acquire().await.unwrap(),
                }
            }
        };
        let first = take(0).await;
        let (machine, answers) = (Stalls::watch(), Slowest::of_agent(&agent));
        let order: Arc<Mutex<Vec<usize>>> = Arc::default();
        // The time of the last release, and the longest time from a release to the next grant.
        let freed = Arc::new(Mutex::new((Instant::now(), Duration::ZERO)));
        let mut waiting = Vec::new();
        let others = agent.pairs("").len();
        for n in 1..10 {
            let (taking, order, freed) = (take(n), Arc::clone(&order), Arc::clone(&freed));
            waiting.push(tokio::spawn(async move {
                let lease = taking.await;
                order.lock().unwrap().push(n);
                {
                    let (at, longest) = &mut *freed.lock().unwrap();
                    *longest = at.elapsed().max(*longest);
                }
                tokio::time::sleep(ms(5)).await;
                freed.lock().unwrap().0 = Instant::now();
                lease.release().await.unwrap();
            }));
            // The next waiter asks after this one is registered.
            let stands = async || agent.pairs("").len() == others + n;
            until("it stands in line", SOON, stands).await;
        }
        freed.lock().unwrap().0 = Instant::now();
        first.release().await.unwrap();
        // A waiter that comes now is served last.
        tokio::time::sleep(ms(1)).await;
        let late = take(0);
        late.await.release().await.unwrap();
        for task in waiting {
            task.await.unwrap();
        }
        let (_, longest) = *freed.lock().unwrap();
        // A waiter that does not take its turn within a second is overtaken. Only a slow machine is an excuse.
        let slow = machine.longest().max(answers.answer());
        let is_prompt = longest < ms(900) || slow < ms(200);
        let order = order.lock().unwrap().clone();
        let in_order = order.is_sorted();
        println!("{order:?}, each after {longest:?} at most");
        assert_eq!(order.len(), 9);
        assert!(
            in_order || !is_prompt,
            "{order:?} after {longest:?}, {slow:?}"
        );
        for consul in clients {
            consul.shutdown().await;
        }
        nothing_is_left(&agent).await;
    }
}

/// The first waiter in the queue does not take the free lock, because its process may be stopped.
#[tokio::test]
async fn a_waiter_that_does_not_take_its_turn_is_overtaken() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    let stranger =
        agent.session(&serde_json::json!({"TTL": "60s", "Behavior": "delete", "NodeChecks": []}));
    let entry = format!(
        "/v1/kv/pool/{stranger}?acquire={stranger}&flags={}",
        0xe0f6_9a2b_aa41_4de0_u64
    );
    assert_eq!(agent.ask("PUT", &entry, "asleep").1.trim(), "true");
    let pool = consul.semaphore("pool", 1);
    assert!(pool.try_acquire().await.unwrap().is_none());
    let (machine, answers) = (Stalls::watch(), Slowest::of_agent(&agent));
    let asked = Instant::now();
    let lease = pool.acquire().await.unwrap();
    let took = asked.elapsed();
    // The waiter has a second for its turn. The rest is for a busy machine.
    let at_most = ms(2_500) + answers.answer() + machine.longest() * 2;
    assert!(
        (ms(900)..at_most).contains(&took),
        "{took:?} of {at_most:?}"
    );
    lease.release().await.unwrap();
    agent.destroy(&stranger);
    consul.shutdown().await;
    nothing_is_left(&agent).await;
}

/// Consul accepts 200 connections from one address. One process uses at most half of them, no matter how much it asks
/// for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_names_of_one_process_are_held_and_waited_for() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    let names: Vec<String> = (0..300).map(|n| format!("many/{n}")).collect();
    let take = |name: &String| {
        let (mutex, pool) = (consul.mutex(name), consul.semaphore(name, 1));
        let is_lock = name.ends_with(['0', '2', '4', '6', '8']);
        async move {
            match is_lock {
                true => mutex.lock().await,
                false => pool.acquire().await,
            }
        }
    };
    let held = join_all(names.iter().map(&take)).await;
    let held: Vec<Lease> = held.into_iter().collect::<Result<_, _>>().unwrap();
    let waiting: Vec<_> = names.iter().map(|name| tokio::spawn(take(name))).collect();
    tokio::time::sleep(ms(4_000)).await;
    assert!(held.iter().all(Lease::is_valid));
    assert!(waiting.iter().all(|waits| !waits.is_finished()));
    for released in join_all(held.into_iter().map(Lease::release)).await {
        released.unwrap();
    }
    let freed = Instant::now();
    for waits in waiting {
        drop(waits.await.unwrap().unwrap());
    }
    // This is the default ttl. Each name is handed over, and no waiter waits for the end of a session.
    assert!(freed.elapsed() < ms(10_000), "{:?}", freed.elapsed());
    consul.shutdown().await;
    nothing_is_left(&agent).await;
}

//! A rate limit between processes on real servers. The servers die, stop and restart, and processes are killed. An
//! outside witness counts which units were used when (protocol §7).
//!
//! Every unit is a time stamp in a file of its process, read from the clock of the machine.
//!
//! | file | tests |
//! | --- | --- |
//! | `servers/crowds` | the memory of many keys |
//! | `servers/far` | masters that are far away |
//! | `servers/late` | answers that come too late |
//! | `servers/quotas` | different limits for one interval |
//! | `servers/small` | limits of few units, and the waits that are named |
//! | `servers/traffic` | the requests to the masters |

mod crowds;
mod far;
mod late;
mod quotas;
mod small;
mod traffic;

use std::{
    fs::{self, File},
    future::{Future, poll_fn},
    io::Write,
    path::PathBuf,
    pin::pin,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::{
    support::{Fleet, HANG, Proxy, Server, Slowest, Stalls, most_within},
    workers::{self, Job},
};
use quorate::{Builder, Quorum, Quota, RateLimiter};

/// Stands for a minute.
const PERIOD: Duration = Duration::from_secs(2);
const LIMIT: u32 = 2_000;
const PROCESSES: usize = 12;
const TASKS: usize = 8;
const NAME: &str = "the supplier";
/// Its quarantine of 15 s is also a long enough history for a limit over 2 s.
const MAX_TTL: Duration = Duration::from_secs(10);

fn builder(urls: &[String]) -> Builder {
    Quorum::builder()
        .nodes(urls)
        .max_ttl(MAX_TTL)
        .node_timeout(Duration::from_millis(300))
}

/// Its quarantine of 1.21 s ends before the history is long enough for a limit over 2 s, which needs 2.222 s.
fn hasty(urls: &[String]) -> Builder {
    builder(urls)
        .max_ttl(Duration::from_secs(1))
        .restart_margin(Duration::from_millis(200))
}

async fn fleet(n: usize) -> (Fleet, Quorum) {
    fleet_of(n, builder).await
}

async fn fleet_of(n: usize, builder: fn(&[String]) -> Builder) -> (Fleet, Quorum) {
    let fleet = Fleet::mixed(n);
    let quorum = builder(&fleet.urls()).connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    quorum.voting(Duration::from_secs(5)).await.unwrap();
    (fleet, quorum)
}

fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_micros()).unwrap()
}

// ---- the workers --------------------------------------------------------------------------------

/// Returns true if this process is a worker, and has done its work. Its work is the size of its blocks, or empty. Its
/// store is the fleet's id for workers of the storm, which reach the masters under other addresses than other clients,
/// and use a short quarantine.
async fn worked() -> bool {
    let Some(job) = Job::of_this_process() else {
        return false;
    };
    let (urls, dir) = (job.urls, job.dir);
    let builder = match &*job.store {
        "" => builder(&urls),
        fleet => hasty(&urls).fleet(fleet),
    };
    let quorum = builder.connect().await.expect("a majority answers");
    let limiter = quorum.rate_limiter(NAME, Quota::new(LIMIT, PERIOD));
    let limiter = match &*job.work {
        "" => limiter,
        block => limiter.block(block.parse().unwrap()),
    };
    let tasks = (0..TASKS).map(|_| tokio::spawn(work(limiter.clone(), dir.clone())));
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    true
}

async fn work(limiter: RateLimiter, dir: PathBuf) {
    let log = dir.join(format!("{}", std::process::id()));
    let mut log = File::options().append(true).create(true).open(log).unwrap();
    while !dir.join("stop").exists() {
        let units = if rand::random_range(0..20) == 0 { 5 } else { 1 };
        let asks = async {
            match rand::random_range(0..10) {
                0 => limiter.check_n(units).await.map(|d| d.is_allowed()),
                // This caller loses patience.
                1 => {
                    let soon = Duration::from_millis(rand::random_range(0..50));
                    let waits = tokio::time::timeout(soon, limiter.until_n_ready(units));
                    waits.await.map_or(Ok(false), |ready| ready.map(|()| true))
                }
                _ => limiter.until_n_ready(units).await.map(|()| true),
            }
        };
        let (now, used) = stamped(asks).await;
        match used {
            Ok(true) => {
                let line = format!("{now}\n").repeat(units as usize);
                log.write_all(line.as_bytes()).unwrap();
            }
            Ok(false) => {}
            Err(error) if error.is_retryable() => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns the time at which the poll that ended the future began. The units had arrived by then. A time stamp after
/// the poll would count a stall of this process against the limiter.
async fn stamped<T>(future: impl Future<Output = T>) -> (u64, T) {
    let mut future = pin!(future);
    poll_fn(|context| {
        let now = now_us();
        future.as_mut().poll(context).map(|done| (now, done))
    })
    .await
}

struct Workers(workers::Workers);

impl Workers {
    fn start(test: &str, urls: &[String], (block, word): (Option<u32>, Option<&str>)) -> Self {
        let block = block.map_or_else(String::new, |block| block.to_string());
        let (work, test) = ((PROCESSES, &*block), (module_path!(), test));
        Self(workers::Workers::start(
            work,
            test,
            urls,
            word.unwrap_or_default(),
        ))
    }

    /// Kills a worker as a power cut would, while it holds units.
    fn kill_one(&mut self) {
        let mut child = self.0.children.pop().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The workers begin nothing more.
    fn stop(&self) {
        File::create(self.0.dir.path().join("stop")).unwrap();
    }

    /// Ends the workers. Returns when each unit was used, in µs.
    fn end(mut self) -> Vec<u64> {
        self.0.stop();
        self.used()
    }

    fn used(&self) -> Vec<u64> {
        let mut used = Vec::new();
        for file in fs::read_dir(self.0.dir.path()).unwrap() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            used.extend(text.lines().map(|line| line.parse::<u64>().unwrap()));
        }
        used.sort_unstable();
        used
    }
}

/// The most units in any interval of this length.
fn most(used: &[u64], period: Duration) -> usize {
    most_within(used, u64::try_from(period.as_micros()).unwrap())
}

/// The average time for which a unit counts: A, the grace, and half a bucket (protocol §7).
fn cycle() -> Duration {
    let (kept, grace, bucket) = (2025, 100, 77);
    Duration::from_millis(kept + grace + bucket / 2)
}

/// The longest time in which all units may be used four times over, at a yield of 0.97. Units are used in bursts, so
/// the units of a few cycles alone show little. The first use after them shows when all were free again.
fn most_for_four_cycles() -> Duration {
    4 * cycle() * 100 / 97
}

/// The time from the first use to the first use after four cycles of this many units.
fn four_cycles(used: &[u64], units: u32) -> Duration {
    Duration::from_micros(used[4 * units as usize] - used[0])
}

// ---- the tests ----------------------------------------------------------------------------------

#[tokio::test]
async fn twelve_processes_use_the_whole_limit_and_never_more() {
    if worked().await {
        return;
    }
    let (fleet, _quorum) = fleet(3).await;
    let test = "twelve_processes_use_the_whole_limit_and_never_more";
    all_there_is(test, &fleet, &[0, 1, 2], (LIMIT, LIMIT)).await;
}

#[tokio::test]
async fn a_dead_master_takes_its_share_with_it_and_no_more() {
    if worked().await {
        return;
    }
    let (fleet, _quorum) = fleet(3).await;
    fleet[1].kill9();
    let test = "a_dead_master_takes_its_share_with_it_and_no_more";
    // Two masters have 667 of 2,000 units.
    all_there_is(test, &fleet, &[0, 2], (1_333, 1_334)).await;
}

#[tokio::test]
async fn two_silent_masters_of_five_take_their_shares_with_them_and_no_more() {
    if worked().await {
        return;
    }
    let (fleet, _quorum) = fleet(5).await;
    fleet[0].sigstop();
    fleet[3].sigstop();
    let test = "two_silent_masters_of_five_take_their_shares_with_them_and_no_more";
    all_there_is(test, &fleet, &[1, 2, 4], (1_200, 1_200)).await;
}

/// Checks that workers use these units four times over, at least and at most. Only the masters that serve answer.
async fn all_there_is(test: &str, fleet: &Fleet, serve: &[usize], (least, most_units): (u32, u32)) {
    let asked = serve.iter().map(|n| Slowest::of_server(&fleet[*n]));
    let asked: Vec<Slowest> = asked.collect();
    let workers = Workers::start(test, &fleet.urls(), (None, None));
    let began = Instant::now();
    while workers.used().len() <= 4 * least as usize {
        assert!(began.elapsed() < 2 * HANG, "{} units", workers.used().len());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    tokio::time::sleep(PERIOD).await;
    let slowest = asked.iter().map(Slowest::answer).max().unwrap();
    let used = workers.end();
    let (took, expected) = (four_cycles(&used, least), 4 * cycle());
    println!(
        "{} units, at most {} in {PERIOD:?}; four cycles took {took:?}: {} of 1000; the slowest answer took {slowest:?}",
        used.len(),
        most(&used, PERIOD),
        expected.as_millis() * 1000 / took.as_millis(),
    );
    assert!(most(&used, PERIOD) <= most_units as usize);
    // An answer that is late may make one cycle longer.
    let at_most = most_for_four_cycles() + 4 * slowest;
    assert!(took <= at_most, "{took:?} of {at_most:?}");
}

#[tokio::test]
async fn restarts_pauses_cuts_and_deaths_never_exceed_the_limit() {
    if worked().await {
        return;
    }
    let (fleet, quorum) = fleet_of(5, hasty).await;
    let word = quorum.fleet().to_owned();
    // A forced bootstrap gives a history as long as the quarantine.
    let limiter = quorum.rate_limiter(NAME, Quota::new(LIMIT, PERIOD));
    while let Err(error) = limiter.check_n(0).await {
        tokio::time::sleep(error.retry_after().unwrap()).await;
    }
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    let urls: Vec<String> = proxies.iter().map(|proxy| proxy.url().to_owned()).collect();
    let test = "restarts_pauses_cuts_and_deaths_never_exceed_the_limit";
    let near = Workers::start(test, &fleet.urls(), (None, Some(&word)));
    let mut far = Workers::start(test, &urls, (Some(40), Some(&word)));
    let pause = || tokio::time::sleep(Duration::from_millis(900));
    for round in 0..3 {
        pause().await;
        gives(&fleet[0]).await;
        fleet[0].restart_empty();
        fleet[1].sigstop();
        pause().await;
        fleet[1].sigcont();
        proxies[2].cut();
        gives(&fleet[3]).await;
        fleet[3].save_snapshot();
        far.kill_one();
        pause().await;
        proxies[2].heal();
        proxies[4].delay(Duration::from_millis(20 * round));
        fleet[3].restart_with_snapshot();
        pause().await;
    }
    pause().await;
    for restarted in [&fleet[0], &fleet[3]] {
        gives(restarted).await;
    }
    // Distant workers get little beside near ones.
    near.stop();
    let mut used = far.end();
    assert!(!used.is_empty(), "those that are far got nothing");
    used.extend(near.end());
    used.sort_unstable();
    println!("{} units, at most {}", used.len(), most(&used, PERIOD));
    assert!(most(&used, PERIOD) <= LIMIT as usize);
    assert!(used.len() > 2 * LIMIT as usize, "only {}", used.len());
}

/// Waits until the server gives units. Units that a snapshot knew do not count any more by now, so a restarted server
/// begins a new key.
async fn gives(server: &Server) {
    let began = Instant::now();
    while !server.keys().iter().any(|(key, _)| key.contains("@rate")) {
        // Workers ask all the time, so the server gives units in every interval. How soon is not what the test checks.
        assert!(began.elapsed() < HANG, "{server} gives no unit");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The wait that a denial names is the real wait.
#[tokio::test]
async fn a_wait_is_as_long_as_it_says() {
    let (fleet, quorum) = fleet(3).await;
    let second = Duration::from_secs(1);
    // A is 1014 ms and E is 100 ms, in 29 buckets.
    let bucket = Duration::from_millis(39);
    let quota = Quota::new(30, second);
    let limiter = quorum.rate_limiter(NAME, quota.clone());
    let another = builder(&fleet.urls()).connect().await.unwrap();
    let other = another.rate_limiter(NAME, quota);
    let mut errors = Vec::new();
    for _ in 0..25 {
        while limiter.check().await.unwrap().is_allowed() {}
        let asked = Instant::now();
        // The wait began at some time while it was asked for, so it ends between these two times.
        let said = limiter.check().await.unwrap().wait();
        let said_to = said + asked.elapsed();
        // Units became free after the last look that found none began, and before the first look that found some ended.
        let mut none_at = Duration::ZERO;
        let found = loop {
            let looked = asked.elapsed();
            // This asks the masters each time.
            if other.check_n(0).await.unwrap().remaining() > 0 {
                break asked.elapsed();
            }
            none_at = looked;
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        let error = said.saturating_sub(found);
        errors.push(error.max(none_at.saturating_sub(said_to)));
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..150))).await;
    }
    errors.sort_unstable();
    println!(
        "off by {:?} at the median, {:?} at the 90th",
        errors[12], errors[22]
    );
    // Units become free bucket by bucket. Waits and the masters' clocks have whole milliseconds.
    assert!(
        errors[22] <= bucket + Duration::from_millis(2),
        "{errors:?}"
    );
}

/// A limit of one unit per interval, and a dead master.
#[tokio::test]
async fn one_dead_master_does_not_stop_a_limit_of_one_a_second() {
    let (fleet, quorum) = fleet(3).await;
    let limiter = quorum.rate_limiter(NAME, Quota::per_second(1));
    let machine = Stalls::watch();
    let began = Instant::now();
    let mut used = Vec::new();
    for n in 0..5 {
        limiter.until_ready().await.unwrap();
        used.push(u64::try_from(began.elapsed().as_micros()).unwrap());
        if n == 1 {
            fleet[2].kill9();
        }
    }
    assert_eq!(most(&used, Duration::from_secs(1)), 1, "{used:?}");
    // Four times 1,014 ms and a grace of 100 ms, and a second for the death of a master.
    let at_most = Duration::from_millis(5_500) + machine.longest() * 4;
    assert!(used[4] < at_most.as_micros() as u64, "{used:?}");
    fleet[1].kill9();
    let error = limiter.check().await.unwrap_err();
    assert!(matches!(error, quorate::Error::NoQuorum(_)), "{error}");
}

/// A master that lost its memory gives no units until it has been watched for a whole interval.
#[tokio::test]
async fn masters_with_a_short_history_give_no_units_of_a_long_interval() {
    let (fleet, quorum) = fleet(3).await;
    let limiter = quorum.rate_limiter(NAME, Quota::per_minute(30));
    // Its history is that of a forced bootstrap, 15 s, which is too short for a minute.
    let error = limiter.check().await.unwrap_err();
    assert!(matches!(error, quorate::Error::Quarantined(_)), "{error}");
    let left = error.retry_after().unwrap();
    // A minute needs a history of 66.7 s.
    assert!(
        left > Duration::from_secs(40) && left < Duration::from_secs(67),
        "{left:?}"
    );
    let few = quorum.rate_limiter(NAME, Quota::per_minute(2));
    let error = few.check().await.unwrap_err();
    assert!(matches!(error, quorate::Error::Quarantined(_)), "{error}");
    assert!(
        quorum
            .rate_limiter(NAME, Quota::new(30, Duration::from_secs(10)))
            .check()
            .await
            .unwrap()
            .is_allowed()
    );
    let key = |server: &Server| {
        server
            .keys()
            .into_iter()
            .map(|(key, _)| key)
            .collect::<Vec<_>>()
    };
    let kept: Vec<String> = fleet
        .iter()
        .flat_map(key)
        .filter(|key| key.contains("@rate"))
        .collect();
    assert_eq!(kept, ["quorate:@rate:10000:3:the supplier"]);
}

/// Scripts that were flushed are loaded again, and no unit is lost.
#[tokio::test]
async fn flushed_scripts_are_loaded_again_and_no_unit_is_lost() {
    let (fleet, quorum) = fleet(3).await;
    let limiter = quorum.rate_limiter(NAME, Quota::new(30, Duration::from_secs(10)));
    for left in [29, 28, 27] {
        for server in fleet.iter() {
            server.cmd(&["SCRIPT", "FLUSH"]);
        }
        let decision = limiter.check().await.unwrap();
        assert_eq!((decision.is_allowed(), decision.remaining()), (true, left));
    }
    for server in fleet.iter() {
        server.cmd(&["SCRIPT", "FLUSH"]);
    }
    assert_eq!(limiter.check_n(0).await.unwrap().remaining(), 27);
}

/// The master that is left can never give this many units. Callers that want fewer are served.
#[tokio::test]
async fn thousands_of_waits_for_more_than_is_left_get_no_quorum() {
    let (fleet, quorum) = fleet(3).await;
    let limiter = quorum.rate_limiter(NAME, Quota::per_second(30));
    assert!(limiter.check().await.unwrap().is_allowed());
    fleet[0].kill9();
    fleet[1].kill9();
    while quorum.health().voting > 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let many = (0..5_000).map(|_| tokio::spawn(limiter.until_n_ready(20)));
    let few = tokio::spawn(limiter.until_n_ready(2));
    for wanted in many.collect::<Vec<_>>() {
        let error = wanted.await.unwrap().unwrap_err();
        assert!(matches!(error, quorate::Error::NoQuorum(_)), "{error}");
    }
    few.await.unwrap().unwrap();
}

/// Other tasks of the process take units all the time, and one master is slow. A check of the rest ends all the same.
#[tokio::test]
async fn a_check_of_the_rest_ends_while_others_take_units() {
    let (fleet, near) = fleet(3).await;
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    proxies[2].delay(Duration::from_millis(20));
    let urls: Vec<String> = proxies.iter().map(|proxy| proxy.url().to_owned()).collect();
    let word = near.fleet().to_owned();
    let quorum = builder(&urls).fleet(word).connect().await.unwrap();
    let limiter = quorum.rate_limiter(NAME, Quota::per_second(90));
    let machine = Stalls::watch();
    let looks = async || {
        let mut took = Vec::new();
        for _ in 0..20 {
            let asked = Instant::now();
            let seen = limiter.check_n(0).await.unwrap();
            took.push(asked.elapsed());
            assert!(seen.remaining() <= 90);
        }
        took.sort_unstable();
        took
    };
    let quiet = looks().await[10];
    let busy = (0..16).map(|_| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            loop {
                let _ = limiter.check().await.unwrap();
                tokio::task::yield_now().await;
            }
        })
    });
    let busy: Vec<_> = busy.collect();
    let looked = looks().await[19];
    // The slow master answers after 40 ms. The factor is for sixteen tasks that keep this thread busy.
    let at_most = quiet * 16 + machine.longest() * 2;
    println!("a look took {quiet:?}, and {looked:?} of {at_most:?} beside other tasks");
    assert!(looked < at_most, "{looked:?} of {at_most:?}");
    busy.iter().for_each(tokio::task::JoinHandle::abort);
}

//! A rate limit between processes on real servers, while these die, stop and restart and while processes are killed: an
//! outside witness counts what was used when (protocol §7).
//!
//! Every unit is a time stamp in a file of its process, by the clock of the machine.
//!
//! | file | what it shows |
//! | --- | --- |
//! | `servers/far` | masters that are far away |
//! | `servers/late` | answers that come too late |
//! | `servers/small` | limits of few units, and the waits that are told |
//! | `servers/traffic` | what the masters are asked |

mod far;
mod late;
mod small;
mod traffic;

use std::{
    fs::{self, File},
    io::Write,
    path::PathBuf,
    process::{Child, Stdio},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::support::{Fleet, Proxy, Server, again, most_within};
use quorate::{Builder, Quorum, Quota, RateLimiter};

/// A minute, shortened.
const PERIOD: Duration = Duration::from_secs(2);
const LIMIT: u32 = 2_000;
const PROCESSES: usize = 12;
const TASKS: usize = 8;
const NAME: &str = "the supplier";
/// Its quarantine of 15 s is a history long enough for a limit of 2 s.
const MAX_TTL: Duration = Duration::from_secs(10);

fn builder(urls: &[String]) -> Builder {
    Quorum::builder()
        .nodes(urls)
        .max_ttl(MAX_TTL)
        .node_timeout(Duration::from_millis(300))
}

/// Its quarantine of 1.21 s ends before the history that a limit of 2 s needs, 2.222 s.
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

// ---- the workers: this very program, started again --------------------------------------------

const URLS: &str = "QUORATE_TEST_URLS";
const DIR: &str = "QUORATE_TEST_DIR";
const BLOCK: &str = "QUORATE_TEST_BLOCK";
/// Those of the storm: they reach the masters by other addresses than others do, and the quarantine is short.
const WORD: &str = "QUORATE_TEST_WORD";

/// Whether this process is a worker; then its work is done when this returns.
async fn worked() -> bool {
    let Ok(urls) = std::env::var(URLS) else {
        return false;
    };
    let dir = PathBuf::from(std::env::var(DIR).unwrap());
    let urls: Vec<String> = urls.split(',').map(str::to_owned).collect();
    let builder = match std::env::var(WORD) {
        Ok(word) => hasty(&urls).fleet(word),
        Err(_) => builder(&urls),
    };
    let quorum = builder.connect().await.expect("a majority answers");
    let limiter = quorum.rate_limiter(NAME, Quota::new(LIMIT, PERIOD));
    let limiter = match std::env::var(BLOCK) {
        Ok(block) => limiter.block(block.parse().unwrap()),
        Err(_) => limiter,
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
        let used = match rand::random_range(0..10) {
            0 => limiter.check_n(units).await.map(|d| d.is_allowed()),
            // Somebody who loses patience.
            1 => {
                let soon = Duration::from_millis(rand::random_range(0..50));
                let waits = tokio::time::timeout(soon, limiter.until_n_ready(units));
                waits.await.map_or(Ok(false), |ready| ready.map(|()| true))
            }
            _ => limiter.until_n_ready(units).await.map(|()| true),
        };
        let now = now_us();
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

/// Processes at work; dropping it kills them.
struct Workers {
    dir: tempfile::TempDir,
    children: Vec<Child>,
}

impl Workers {
    fn start(test: &str, urls: &[String], (block, word): (Option<u32>, Option<&str>)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let hire = |_| {
            let mut command = again(module_path!(), test);
            command
                .env(URLS, urls.join(","))
                .env(DIR, dir.path())
                .stdout(Stdio::null());
            if let Some(block) = block {
                command.env(BLOCK, block.to_string());
            }
            if let Some(word) = word {
                command.env(WORD, word);
            }
            command.spawn().expect("setpriv (Debian: util-linux)")
        };
        let children = (0..PROCESSES).map(hire).collect();
        Self { dir, children }
    }

    /// As a power cut would, with units in its hands.
    fn kill_one(&mut self) {
        let mut child = self.children.pop().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// They begin nothing more.
    fn stop(&self) {
        File::create(self.dir.path().join("stop")).unwrap();
    }

    /// Ends them. When each unit was used, in µs.
    fn end(mut self) -> Vec<u64> {
        self.stop();
        for child in &mut self.children {
            assert!(child.wait().unwrap().success());
        }
        self.used()
    }

    fn used(&self) -> Vec<u64> {
        let mut used = Vec::new();
        for file in fs::read_dir(self.dir.path()).unwrap() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            used.extend(text.lines().map(|line| line.parse::<u64>().unwrap()));
        }
        used.sort_unstable();
        used
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The most units in any interval of this length.
fn most(used: &[u64], period: Duration) -> usize {
    most_within(used, u64::try_from(period.as_micros()).unwrap())
}

/// For how long a unit counts, on the average: A, the grace, and half a bucket (protocol §7).
fn cycle() -> Duration {
    let (kept, grace, bucket) = (2025, 100, 77);
    Duration::from_millis(kept + grace + bucket / 2)
}

/// How long so many units may take that are used four times over: at 0.97 of that yield. What is used comes in bursts, so
/// the units of some cycles say little; the first use after them says when all were free again.
fn most_for_four_cycles() -> Duration {
    4 * cycle() * 100 / 97
}

/// From the first use to the first after four cycles of so many.
fn four_cycles(used: &[u64], units: u32) -> Duration {
    Duration::from_micros(used[4 * units as usize] - used[0])
}

// ---- the tests ----------------------------------------------------------------------------------

#[tokio::test]
async fn twelve_processes_use_all_there_is_and_never_more() {
    if worked().await {
        return;
    }
    let (fleet, _quorum) = fleet(3).await;
    let test = "twelve_processes_use_all_there_is_and_never_more";
    all_there_is(test, &fleet, (LIMIT, LIMIT)).await;
}

#[tokio::test]
async fn a_dead_master_takes_its_share_with_it_and_no_more() {
    if worked().await {
        return;
    }
    let (fleet, _quorum) = fleet(3).await;
    fleet[1].kill9();
    let test = "a_dead_master_takes_its_share_with_it_and_no_more";
    // Of 2,000 two masters have 667.
    all_there_is(test, &fleet, (1_333, 1_334)).await;
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
    all_there_is(test, &fleet, (1_200, 1_200)).await;
}

/// Workers use these units four times over, at least and at most.
async fn all_there_is(test: &str, fleet: &Fleet, (least, most_units): (u32, u32)) {
    let workers = Workers::start(test, &fleet.urls(), (None, None));
    tokio::time::sleep(most_for_four_cycles() + PERIOD).await;
    let used = workers.end();
    let (took, expected) = (four_cycles(&used, least), 4 * cycle());
    println!(
        "{} units, at most {} in {PERIOD:?}; four cycles took {took:?}: {} of 1000",
        used.len(),
        most(&used, PERIOD),
        expected.as_millis() * 1000 / took.as_millis(),
    );
    assert!(most(&used, PERIOD) <= most_units as usize);
    assert!(took <= most_for_four_cycles(), "{took:?}");
}

#[tokio::test]
async fn through_restarts_pauses_cuts_and_deaths_never_more() {
    if worked().await {
        return;
    }
    let (fleet, quorum) = fleet_of(5, hasty).await;
    let word = quorum.fleet().to_owned();
    // A forced bootstrap is as long a history as the quarantine.
    let limiter = quorum.rate_limiter(NAME, Quota::new(LIMIT, PERIOD));
    while let Err(error) = limiter.check_n(0).await {
        tokio::time::sleep(error.retry_after().unwrap()).await;
    }
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    let urls: Vec<String> = proxies.iter().map(|proxy| proxy.url().to_owned()).collect();
    let test = "through_restarts_pauses_cuts_and_deaths_never_more";
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
    // Those that are far get little beside those that are near.
    near.stop();
    let mut used = far.end();
    assert!(!used.is_empty(), "those that are far got nothing");
    used.extend(near.end());
    used.sort_unstable();
    println!("{} units, at most {}", used.len(), most(&used, PERIOD));
    assert!(most(&used, PERIOD) <= LIMIT as usize);
    assert!(used.len() > 2 * LIMIT as usize, "only {}", used.len());
}

/// It was restarted, or never was, and gives units: what a snapshot knew of counts no more by now, so its key is a new one.
async fn gives(server: &Server) {
    let began = Instant::now();
    while !server.keys().iter().any(|(key, _)| key.contains("@rate")) {
        // Workers ask all the time, so it gives units in every interval.
        assert!(began.elapsed() < PERIOD, "{server} gives no unit");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The wait that a denial names is the wait that there is.
#[tokio::test]
async fn a_wait_is_as_long_as_it_says() {
    let (fleet, quorum) = fleet(3).await;
    let second = Duration::from_secs(1);
    // A is 1014 ms, E 100 ms: 29 buckets.
    let bucket = Duration::from_millis(39);
    let quota = Quota::new(30, second);
    let limiter = quorum.rate_limiter(NAME, quota.clone());
    let another = builder(&fleet.urls()).connect().await.unwrap();
    let other = another.rate_limiter(NAME, quota);
    let mut errors = Vec::new();
    for _ in 0..25 {
        while limiter.check().await.unwrap().is_allowed() {}
        let asked = Instant::now();
        let said = limiter.check().await.unwrap().wait();
        let truly = loop {
            // It asks the masters each time.
            if other.check_n(0).await.unwrap().remaining() > 0 {
                break asked.elapsed();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        errors.push(said.abs_diff(truly));
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..150))).await;
    }
    errors.sort_unstable();
    println!(
        "off by {:?} at the median, {:?} at the 90th",
        errors[12], errors[22]
    );
    // Units become free by buckets. 5 ms are for the look that sees it.
    assert!(
        errors[22] <= bucket + Duration::from_millis(5),
        "{errors:?}"
    );
}

/// "One in so long", and a master is dead.
#[tokio::test]
async fn one_dead_master_does_not_stop_one_a_second() {
    let (fleet, quorum) = fleet(3).await;
    let limiter = quorum.rate_limiter(NAME, Quota::per_second(1));
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
    assert!(used[4] < 5_500_000, "{used:?}");
    fleet[1].kill9();
    let error = limiter.check().await.unwrap_err();
    assert!(matches!(error, quorate::Error::NoQuorum(_)), "{error}");
}

/// A master that lost its memory gives nothing out before it has seen a whole interval.
#[tokio::test]
async fn after_a_restart_of_all_the_limit_stands_still() {
    let (fleet, quorum) = fleet(3).await;
    let limiter = quorum.rate_limiter(NAME, Quota::per_minute(30));
    // Its history is that of a forced bootstrap, 15 s: too short for a minute.
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
            .rate_limiter(NAME, Quota::per_second(30))
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
    assert_eq!(kept, ["quorate:@rate:30:1000:3:the supplier"]);
}

/// What was flushed is given again, and nothing is lost.
#[tokio::test]
async fn flushed_scripts_are_given_again() {
    let (fleet, quorum) = fleet(3).await;
    let limiter = quorum.rate_limiter(NAME, Quota::per_second(30));
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

/// So many can never be had of the one that is left; those who want fewer are served.
#[tokio::test]
async fn thousands_who_want_more_than_is_left_are_told_so() {
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

/// Others of its process take units all the time, and one master is slow: a look ends all the same.
#[tokio::test]
async fn a_look_ends_beside_others() {
    let (fleet, near) = fleet(3).await;
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    proxies[2].delay(Duration::from_millis(20));
    let urls: Vec<String> = proxies.iter().map(|proxy| proxy.url().to_owned()).collect();
    let word = near.fleet().to_owned();
    let quorum = builder(&urls).fleet(word).connect().await.unwrap();
    let limiter = quorum.rate_limiter(NAME, Quota::per_second(90));
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
    for _ in 0..20 {
        let asked = Instant::now();
        let seen = limiter.check_n(0).await.unwrap();
        // The slow master answers after 40 ms. The rest is for sixteen tasks that keep this thread busy.
        assert!(
            asked.elapsed() < Duration::from_millis(700),
            "{:?}",
            asked.elapsed()
        );
        assert!(seen.remaining() <= 90);
    }
    busy.iter().for_each(tokio::task::JoinHandle::abort);
}

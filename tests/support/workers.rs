//! Processes that work on one file at the same time. Each is this test program, started again.

#![allow(unreachable_pub)]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Fleet, again};

/// Far longer than a lease and a quarantine.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// Keys of ended workers are gone after this time.
pub const GONE_WITHIN: Duration = Duration::from_secs(1);

const WORK: &str = "QUORATE_TEST_WORK";
const URLS: &str = "QUORATE_TEST_URLS";
const DIR: &str = "QUORATE_TEST_DIR";
const STORE: &str = "QUORATE_TEST_STORE";

/// The instructions of a worker.
pub struct Job {
    pub work: String,
    pub urls: Vec<String>,
    pub dir: PathBuf,
    pub store: String,
}

impl Job {
    /// `None` if this process is not a worker.
    pub fn of_this_process() -> Option<Self> {
        let var = |name| std::env::var(name).unwrap_or_default();
        Some(Self {
            work: std::env::var(WORK).ok()?,
            urls: var(URLS).split(',').map(str::to_owned).collect(),
            dir: PathBuf::from(var(DIR)),
            store: var(STORE),
        })
    }

    pub fn is_over(&self) -> bool {
        self.dir.join("stop").exists()
    }
}

pub fn millis(from: u64, to: u64) -> Duration {
    Duration::from_millis(rand::random_range(from..to))
}

/// Appends a line in one write.
pub fn write_line(log: &Path, line: &str) {
    let mut log = File::options().append(true).create(true).open(log).unwrap();
    log.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// A line of the file: the number, and the token with which it was written.
pub struct Entry {
    pub number: u64,
    pub token: u64,
    line: String,
}

pub fn written(log: &Path) -> Vec<Entry> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines = text.lines().map(|line| {
        let mut words = line.split(' ').map(|word| word.parse().unwrap());
        Entry {
            number: words.next().unwrap(),
            token: words.next().unwrap(),
            line: line.into(),
        }
    });
    lines.collect()
}

/// Running worker processes. Dropping this kills them.
pub struct Workers {
    pub dir: tempfile::TempDir,
    urls: String,
    module: &'static str,
    test: String,
    store: String,
    pub children: Vec<Child>,
}

impl Workers {
    /// `test` is the name of the test that calls [`Job::of_this_process`], after its `module_path!()`.
    pub fn start(
        (n, work): (usize, &str),
        (module, test): (&'static str, &str),
        urls: &[String],
        store: &str,
    ) -> Self {
        let mut workers = Self {
            dir: tempfile::tempdir().unwrap(),
            urls: urls.join(","),
            module,
            test: test.to_owned(),
            store: store.to_owned(),
            children: Vec::new(),
        };
        for _ in 0..n {
            workers.hire(work);
        }
        workers
    }

    pub fn hire(&mut self, work: &str) {
        let child = again(self.module, &self.test)
            .env(WORK, work)
            .env(URLS, &self.urls)
            .env(DIR, self.dir.path())
            .env(STORE, &self.store)
            .stdout(Stdio::null())
            .spawn()
            .expect("setpriv (Debian: util-linux)");
        self.children.push(child);
    }

    /// Kills the oldest worker, and starts another with this work.
    pub fn replace(&mut self, work: &str) {
        let mut child = self.children.remove(0);
        child.kill().unwrap();
        child.wait().unwrap();
        self.hire(work);
    }

    pub fn log(&self) -> Vec<Entry> {
        written(&self.dir.path().join("log"))
    }

    /// Waits until the counter has moved on. The test would show nothing if nobody got the lock.
    pub fn progress(&self, after: &str) {
        let so_far = self.log().len();
        let deadline = Instant::now() + PATIENCE;
        while self.log().len() < so_far + 4 {
            assert!(Instant::now() < deadline, "no progress after: {after}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends the workers in order, checks their work, and checks that nothing is left behind.
    pub fn finish(self, fleet: &Fleet) {
        self.end();
        assert_eq!(fleet.leftover_locks_after(GONE_WITHIN, "quorate"), [""; 0]);
    }

    /// Ends the workers in order, and checks their work.
    pub fn end(mut self) {
        self.stop();
        check(&self.log());
    }

    /// Ends the workers in order.
    pub fn stop(&mut self) {
        File::create(self.dir.path().join("stop")).unwrap();
        for mut child in self.children.drain(..) {
            let status = child.wait().unwrap();
            assert!(status.success(), "a worker failed: {status}");
        }
    }
}

/// Checks that no update was lost, and that the tokens grow.
pub fn check(log: &[Entry]) {
    println!("{} updates", log.len());
    let mut token = 0;
    for (i, entry) in log.iter().enumerate() {
        let text = || {
            log[i.saturating_sub(3)..]
                .iter()
                .take(7)
                .map(|e| &*e.line)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            entry.number,
            i as u64 + 1,
            "an update was lost: {:#?}",
            text()
        );
        assert!(entry.token > token, "a token from the past: {:#?}", text());
        token = entry.token;
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

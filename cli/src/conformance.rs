//! `quorate conformance`: runs the requirements on a node against one server, and prints a page about it.

use std::panic;

use quorate::{
    cli::counted,
    testing::conformance::{Ended, Power, Server, Verdict, judge},
};
use serde_json::{Value, json};
use tokio::select;

use crate::{
    args::Args,
    failure::{Failure, UNAVAILABLE},
    output,
    signals::Signals,
};

/// A case failed.
const FAILED: u8 = 1;

/// The cases so far, by how they ended.
#[derive(Default)]
struct Page {
    passed: u64,
    failed: Vec<(Verdict, String)>,
    not_run: Vec<(Verdict, Vec<Power>)>,
}

pub(crate) async fn run(args: &Args) -> Result<u8, Failure> {
    let nodes = args.fleet.nodes()?;
    let [url] = nodes.as_slice() else {
        return Err(Failure::usage(format!(
            "conformance looks at one server, and {} are named: give one --node URL",
            nodes.len()
        )));
    };
    let cannot = |why: String| Failure::new(UNAVAILABLE, "unavailable", why);
    let mut signals = Signals::new()?;
    let server = select! {
        biased;
        signal = signals.end() => {
            return Err(Failure::interrupted(signal as i32, "ended before any case was run"));
        }
        server = Server::connect(url) => server.map_err(cannot)?,
    };
    let mut page = Page::default();
    // A case that fails panics. The page says so.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let ended = select! {
        biased;
        signal = signals.end() => Some(signal),
        () = judge(&server, |verdict| page.add(verdict)) => None,
    };
    panic::set_hook(hook);
    let cleaned = server.clean().await;
    if let Some(signal) = ended {
        let left = match cleaned {
            Ok(()) => "the keys of the cases are deleted".to_owned(),
            Err(why) => format!("keys that begin with quorate:conformance- may be left: {why}"),
        };
        let text = format!("ended before all cases were run; {left}");
        return Err(Failure::interrupted(signal as i32, text));
    }
    match args.json {
        true => output::say(&page.as_json(&server).to_string()),
        false => page.print(&server),
    }
    let left = |why| format!("keys that begin with quorate:conformance- may be left: {why}");
    cleaned.map_err(|why| cannot(left(why)))?;
    Ok(if page.failed.is_empty() { 0 } else { FAILED })
}

impl Page {
    fn add(&mut self, mut verdict: Verdict) {
        match std::mem::replace(&mut verdict.ended, Ended::Passed) {
            Ended::Passed => self.passed += 1,
            Ended::Failed(why) => self.failed.push((verdict, why)),
            Ended::NotRun(powers) => self.not_run.push((verdict, powers)),
        }
    }

    fn print(&self, server: &Server) {
        let of = env!("CARGO_PKG_VERSION");
        output::say(&format!("conformance to quorate {of}"));
        for line in server.about() {
            output::say(line);
        }
        let (passed, failed) = (counted(self.passed, "case"), self.failed.len());
        let not_run = self.not_run.len();
        output::say(&format!(
            "{passed} passed, {failed} failed, {not_run} were not run"
        ));
        for (Verdict { case, rule, .. }, why) in &self.failed {
            output::say(&format!("\nFAILED {case}\n  rule: {rule}\n  {why}"));
        }
        if not_run > 0 {
            output::say(
                "\nNot run, because they would change the server's settings (maxmemory, REPLICAOF):",
            );
        }
        for (Verdict { case, .. }, _) in &self.not_run {
            output::say(&format!("  {case}"));
        }
    }

    fn as_json(&self, server: &Server) -> Value {
        let failed = self
            .failed
            .iter()
            .map(|(verdict, why)| json!({"case": verdict.case, "rule": verdict.rule, "why": why}));
        let failed: Vec<Value> = failed.collect();
        let not_run = self.not_run.iter().map(|(verdict, powers)| {
            let needs: Vec<String> = powers.iter().map(|power| format!("{power:?}")).collect();
            json!({"case": verdict.case, "needs": needs})
        });
        let not_run: Vec<Value> = not_run.collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"), "server": server.about(),
            "passed": self.passed, "failed": failed, "not_run": not_run,
        })
    }
}

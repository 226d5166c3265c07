//! One case, and running several of them.

use std::{any::Any, fmt, panic::AssertUnwindSafe};

use futures::FutureExt as _;

use super::{
    subject::{Doing, Power, Subject},
    trial::Trial,
};

/// A case: its name, the rule that it checks, and the powers that the subject must have.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) rule: &'static str,
    pub(crate) needs: &'static [Power],
    pub(crate) run: for<'a> fn(&'a mut Trial<'_>) -> Doing<'a, ()>,
}

/// Makes a [`Case`](crate::testing::conformance::case::Case) from the rule, the function, and the powers that it needs.
macro_rules! case {
    ($rule:literal, $case:ident $(, $power:ident)*) => {{
        fn run<'a>(
            trial: &'a mut $crate::testing::conformance::trial::Trial<'_>,
        ) -> $crate::testing::conformance::Doing<'a, ()> {
            Box::pin($case(trial))
        }
        $crate::testing::conformance::case::Case {
            name: stringify!($case),
            rule: $rule,
            needs: &[$($crate::testing::conformance::Power::$power),*],
            run,
        }
    }};
}

pub(crate) use case;

/// The cases that were run, and those that were not.
#[must_use = "a case that is not run shows nothing"]
#[non_exhaustive]
#[derive(Debug, Default)]
pub struct Outcome {
    /// The names of the cases that were run. Each of them passed.
    pub ran: Vec<&'static str>,
    /// The cases that were not run because the subject lacks a power.
    pub not_run: Vec<NotRun>,
}

/// A case that was not run.
#[non_exhaustive]
#[derive(Debug)]
pub struct NotRun {
    /// The name of the case.
    pub case: &'static str,
    /// The powers that the subject lacks.
    pub for_want_of: Vec<Power>,
}

impl Outcome {
    pub(super) fn extend(&mut self, other: Self) {
        self.ran.extend(other.ran);
        self.not_run.extend(other.not_run);
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cases held", self.ran.len())?;
        for NotRun { case, for_want_of } in &self.not_run {
            write!(f, "; {case} was not run for want of {for_want_of:?}")?;
        }
        Ok(())
    }
}

/// One case, and its result.
#[non_exhaustive]
#[derive(Debug)]
pub struct Verdict {
    /// The name of the case.
    pub case: &'static str,
    /// The rule that it checks.
    pub rule: &'static str,
    /// The result.
    pub ended: Ended,
}

/// How a case ended.
#[derive(Debug)]
pub enum Ended {
    /// The subject did what the rule says.
    Passed,
    /// It did something else, which this text describes.
    Failed(String),
    /// The case was not run, because the subject lacks these powers.
    NotRun(Vec<Power>),
}

/// Runs each case on a fresh master that votes. A case that fails panics.
pub(super) async fn run(cases: &[Case], subject: &dyn Subject) -> Outcome {
    let mut outcome = Outcome::default();
    for case in cases {
        let for_want_of = lacks(case, subject);
        if !for_want_of.is_empty() {
            let case = case.name;
            outcome.not_run.push(NotRun { case, for_want_of });
            continue;
        }
        let _running = Running(case, subject);
        run_one(case, subject).await;
        outcome.ran.push(case.name);
    }
    outcome
}

/// Runs one case. A case that fails does not panic.
pub(super) async fn judge(case: &Case, subject: &dyn Subject) -> Verdict {
    let for_want_of = lacks(case, subject);
    let ended = match for_want_of.is_empty() {
        false => Ended::NotRun(for_want_of),
        true => match AssertUnwindSafe(run_one(case, subject))
            .catch_unwind()
            .await
        {
            Ok(()) => Ended::Passed,
            Err(panic) => Ended::Failed(text(&*panic)),
        },
    };
    Verdict {
        case: case.name,
        rule: case.rule,
        ended,
    }
}

async fn run_one(case: &Case, subject: &dyn Subject) {
    let mut trial = Trial::start(subject).await;
    (case.run)(&mut trial).await;
}

fn lacks(case: &Case, subject: &dyn Subject) -> Vec<Power> {
    let lacks = |power: &Power| !subject.powers().contains(power);
    case.needs.iter().copied().filter(lacks).collect()
}

/// The text of a panic.
fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it panicked without a text").to_owned()
}

/// If a case panics, this says which one it was.
struct Running<'a>(&'a Case, &'a dyn Subject);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Case { name, rule, .. } = self.0;
            eprintln!("{} failed: {name} ({rule})", self.1.name());
        }
    }
}

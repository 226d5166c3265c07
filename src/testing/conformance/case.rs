//! One case, and the run of many.

use std::fmt;

use super::{
    subject::{Doing, Power, Subject},
    trial::Trial,
};

/// A case: its name, the rule that it stands for, and what the subject must be able to do.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) rule: &'static str,
    pub(crate) needs: &'static [Power],
    pub(crate) run: for<'a> fn(&'a mut Trial<'_>) -> Doing<'a, ()>,
}

/// A [`Case`](crate::testing::conformance::case::Case): the rule, the function, the powers it needs.
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

/// Which cases were run, and which were not.
#[must_use = "a case that is not run shows nothing"]
#[non_exhaustive]
#[derive(Debug, Default)]
pub struct Outcome {
    /// Their names. Each of them held.
    pub ran: Vec<&'static str>,
    /// For want of a power of the subject.
    pub not_run: Vec<NotRun>,
}

/// A case that was not run.
#[non_exhaustive]
#[derive(Debug)]
pub struct NotRun {
    /// Its name.
    pub case: &'static str,
    /// What the subject would have to be able to do.
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

/// Each case on a fresh master that votes.
pub(super) async fn run(cases: &[Case], subject: &dyn Subject) -> Outcome {
    let mut outcome = Outcome::default();
    for case in cases {
        let lacks = |power: &Power| !subject.powers().contains(power);
        let for_want_of: Vec<Power> = case.needs.iter().copied().filter(lacks).collect();
        if !for_want_of.is_empty() {
            let case = case.name;
            outcome.not_run.push(NotRun { case, for_want_of });
            continue;
        }
        let _running = Running(case, subject);
        let mut trial = Trial::start(subject).await;
        (case.run)(&mut trial).await;
        outcome.ran.push(case.name);
    }
    outcome
}

/// Says which case it was, if that panics.
struct Running<'a>(&'a Case, &'a dyn Subject);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Case { name, rule, .. } = self.0;
            eprintln!("{} failed: {name} ({rule})", self.1.name());
        }
    }
}

//! ADMIT, and the survey before it.

use super::{
    modes::{Brought, modes},
    *,
};

pub(super) async fn every_mode_of_admit(trial: &mut Trial<'_>) {
    let run_id = trial.run_id.clone();
    for case in modes() {
        let Brought {
            line,
            boot,
            admit,
            after,
        } = case;
        let admit = Admit {
            run: admit.run.replace("RUN", &run_id),
            ..admit
        };
        for open in [None, Some("else")] {
            trial.put(Key::Boot, Some(&boot)).await;
            trial.put(Key::Open, open).await;
            let said = trial.say(Command::Admit(admit.clone())).await;
            assert_eq!(
                said,
                node::Answer::Admission(Reply::Admitted(after.is_some())),
                "{line}"
            );
            let wanted = match &after {
                Some(after) => [Some(after.clone()), Some(guard_of(after))],
                None => [Some(boot.clone()), open.map(str::to_owned)],
            };
            assert_eq!(trial.stands().await, wanted, "{}: {line}", trial.name());
        }
    }
    trial.change(Change::Flush).await;
    let nothing = Admit {
        mode: Mode::Forced,
        ..admission_of(&"3 3 word 20000 5000 r i 0 0 0".parse().unwrap())
    };
    assert_eq!(
        trial.say(Command::Admit(nothing)).await,
        node::Answer::Admission(Reply::Admitted(false))
    );
    assert_eq!(trial.stands().await, [None, None]);
}

pub(super) async fn a_survey_sees_counters_and_names_a_lock(trial: &mut Trial<'_>) {
    assert_eq!(trial.say(Command::Survey).await, surveyed(false, None));
    trial.say(acquire("a:b", 1, secs(10), 0)).await;
    trial.say(release("a:b", 1)).await;
    let used = surveyed(true, Some("a:b"));
    assert_eq!(
        trial.ask_with(&Command::Survey.into(), "none").await,
        Ok(used.clone())
    );

    // First the previous counters hold no name, then the current ones.
    trial.change(Change::Flush).await;
    trial.change(Change::Age(3 * DAY)).await;
    assert_eq!(trial.say(Command::Survey).await, surveyed(true, None));
    trial.admit().await;
    trial.say(acquire("a:b", 1, secs(10), 0)).await;
    assert_eq!(trial.say(Command::Survey).await, used);
    trial.change(Change::Age(3 * DAY)).await;
    trial.say(acquire("c", 1, secs(10), 0)).await;
    assert_eq!(trial.say(Command::Survey).await, surveyed(true, Some("c")));

    trial.change(Change::Flush).await;
    assert_eq!(trial.say(Command::Survey).await, surveyed(false, None));
}

fn surveyed(used: bool, lock: Option<&str>) -> node::Answer {
    let lock = lock.map(name);
    node::Answer::Admission(Reply::Surveyed { used, lock })
}

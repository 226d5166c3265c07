//! HANDSHAKE: the keys afterwards, and the answer.

use super::{
    lines::{Line, brought, lines},
    *,
};

pub(super) async fn every_line_of_the_handshake(trial: &mut Trial<'_>) {
    let run_id = trial.run_id.clone();
    for case in lines() {
        let Line {
            line,
            boot,
            hello,
            visited,
            after,
        } = case;
        let hello = Handshake {
            known: here(hello.known, &run_id),
            ..hello
        };
        // `open` holds nothing, another text, or the guard of the record.
        let stored = boot.as_deref().map(Stored::read);
        let stored = stored.as_ref().and_then(Stored::record);
        let right = stored.map(|record| guard_of(&record.to_string()));
        for open in [None, Some("else"), right.as_deref()] {
            trial.put(Key::Boot, boot.as_deref()).await;
            trial.put(Key::Open, open).await;
            let now = trial.wall_us().await.to_string();
            let time = visited.then_some(now);
            trial.put(Key::Time, time.as_deref()).await;
            let meeting = trial.meet(&hello).await;
            let wanted = match &after {
                Some(after) => [Some(after.clone()), open_of(after)],
                None => [boot.clone(), open.map(str::to_owned)],
            };
            let name = trial.name();
            assert_eq!(
                trial.stands().await,
                wanted,
                "{name}: {line}, open {open:?}"
            );
            let votes = after.is_some() && wanted[1].is_some();
            assert_eq!(meeting.open, votes, "{name}: {line}");
            let text = wanted[0].as_deref().unwrap().replace("RUN", &run_id);
            assert_eq!(meeting.stored, Stored::read(&text), "{name}: {line}");
        }
    }
}

pub(super) async fn a_handshake_answers_the_greater_w_and_writes_it_if_worthwhile(
    trial: &mut Trial<'_>,
) {
    let run_id = trial.run_id.clone();
    for (w, x, written) in [
        (1000, 1001, 1001),
        (25_199, 25_200, 25_200),
        (25_200, 25_201, 25_200),
        (25_200, 25_451, 25_200),
        // 1.01 times 25,200.
        (25_200, 25_452, 25_452),
        (40_000, 40_399, 40_000),
        (40_000, 40_400, 40_400),
        (97_200_000, 98_172_000, 97_200_000),
    ] {
        let boot = format!("3 3 word 20000 5000 RUN/00000000/-1 old 0 0 {w}");
        trial.put(Key::Boot, Some(&boot)).await;
        let hello = brought(&format!("3 word 20000 5000 0 0 {x}"), Some(&boot));
        let hello = Handshake {
            known: here(hello.known, &run_id),
            ..hello
        };
        let (record, _) = trial.record(&hello).await;
        assert_eq!(record.witnessed, x.min(97_200_000), "{w}, {x}");
        let [stands, _] = trial.stands().await;
        let wanted = format!("3 3 word 20000 5000 RUN/00000000/-1 old 0 0 {written}");
        assert_eq!(stands, Some(wanted), "{}: {w}, {x}", trial.name());
    }
    // Any other change writes the w too.
    let boot = "3 3 word 20000 5000 RUN/00000000/-1 old 0 0 25200";
    trial.put(Key::Boot, Some(boot)).await;
    let told = brought("3 word 20000 5000 0 1 25201", Some(boot));
    trial
        .meet(&Handshake {
            known: here(told.known, &run_id),
            ..told
        })
        .await;
    let wanted = "3 3 word 20000 5000 RUN/00000000/-1 old 0 1 25201";
    assert_eq!(trial.stands().await[0].as_deref(), Some(wanted));
}

/// The guard if this record votes, computed from its words.
fn open_of(record: &str) -> Option<String> {
    let words: Vec<&str> = record.split(' ').collect();
    let number = |i: usize| words[i].parse::<u64>().unwrap();
    let (max_ttl, margin, w) = (number(3), number(4), number(9));
    let votes = w >= max_ttl + max_ttl.div_ceil(100) + margin;
    votes.then(|| guard_of(record))
}

/// Replaces RUN by this server's run id in what a client has read.
fn here(known: Option<(String, String)>, run_id: &str) -> Option<(String, String)> {
    known.map(|(run, id)| (run.replace("RUN", run_id), id))
}

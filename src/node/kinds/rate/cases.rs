//! Cases about the units of a rate limit, for every kind of node (protocol §7).

// A failed case panics, as a test does.
#![allow(clippy::panic)]

use std::time::Duration;

use tokio::time::sleep;

use super::Stamp;
use crate::{
    base::quota::Window,
    node::{
        Fault,
        answer::{Answer, TakenUnits},
        mutex::cases::{DAY, name, secs},
        request::{Meter, Units},
    },
    testing::conformance::{
        Change,
        case::{Case, case},
        random::{Chance, near},
        trial::Trial,
    },
};

pub(crate) const CASES: &[Case] = &[
    case!(
        "§7 SPEND: a node gives out no more than its share, and says how many units are left.",
        no_more_than_the_share_is_given_out
    ),
    case!(
        "§7 SPEND: all wanted units or none. A refusal names an exact wait, and no wait for \
         more than the share.",
        a_refusal_says_how_long_to_wait
    ),
    case!(
        "§7 SPEND: units are taken in all intervals or in none.",
        several_intervals_are_spent_together
    ),
    case!(
        "§7: a limit with another name, interval or number of masters is counted separately.",
        other_settings_are_counted_separately
    ),
    case!(
        "§7 `SharedLedger`: different limits of one interval count the same units, each up to its own share.",
        different_limits_of_an_interval_share_one_count
    ),
    case!(
        "§7: a unit is free again A after the last instant at which it could be used.",
        units_are_free_after_their_interval
    ),
    case!(
        "§7 REFUND: units that still count are taken back where they were counted.",
        refunded_units_are_free_at_once
    ),
    case!(
        "§7 REFUND: it never takes back units of another era, and never goes below zero.",
        a_refund_needs_its_era
    ),
    case!(
        "§7 LOOK: it lists taken units in the order in which they will be free, and writes nothing.",
        a_look_lists_the_taken_units
    ),
    case!(
        "§2: nothing is given out without the guard.",
        nothing_is_done_without_the_guard
    ),
    case!(
        "§3 `ErrorIsNoAnswer`: a full server answers with an error.",
        a_full_server_gives_nothing_out,
        Full
    ),
];

fn meter(n: &str, shares: &[(u32, Duration)]) -> Meter {
    let windows = shares.iter().map(|(share, period)| {
        let window = Window {
            period: *period,
            limit: 3 * share,
        };
        (window, *share)
    });
    Meter {
        name: name(n),
        masters: 3,
        windows: windows.collect(),
    }
}

fn spend(meter: &Meter, units: u32) -> Units {
    Units::Spend {
        meter: meter.clone(),
        units,
        age: Duration::from_millis(20),
    }
}

async fn say(trial: &mut Trial<'_>, command: Units) -> Answer {
    trial.say(command).await
}

/// The room that is left in the fullest interval, and where the units were counted.
async fn spent(trial: &mut Trial<'_>, meter: &Meter, units: u32) -> (u32, Box<[Stamp]>) {
    match say(trial, spend(meter, units)).await {
        Answer::Spent { rooms, stamps } => (rooms.iter().copied().min().unwrap_or(0), stamps),
        other => panic!("{}: {other:?}", trial.name()),
    }
}

async fn full(trial: &mut Trial<'_>, meter: &Meter, units: u32) -> (u32, Option<Duration>) {
    match say(trial, spend(meter, units)).await {
        Answer::Full { rooms, wait } => (rooms.iter().copied().min().unwrap_or(0), wait),
        other => panic!("{}: {other:?}", trial.name()),
    }
}

async fn look(trial: &mut Trial<'_>, meter: &Meter) -> Box<[Box<[TakenUnits]>]> {
    let meter = meter.clone();
    match say(trial, Units::Look { meter }).await {
        Answer::Metered(taken) => taken,
        other => panic!("{}: {other:?}", trial.name()),
    }
}

async fn refund(trial: &mut Trial<'_>, meter: &Meter, units: u32, stamps: &[Stamp]) -> u32 {
    let refund = Units::Refund {
        meter: meter.clone(),
        units,
        stamps: stamps.into(),
    };
    match say(trial, refund).await {
        Answer::Refunded(back) => back,
        other => panic!("{}: {other:?}", trial.name()),
    }
}

async fn no_more_than_the_share_is_given_out(trial: &mut Trial<'_>) {
    let meter = meter("a", &[(5, secs(60))]);
    assert_eq!(spent(trial, &meter, 1).await.0, 4);
    assert_eq!(spent(trial, &meter, 4).await.0, 0);
    assert_eq!(full(trial, &meter, 1).await.0, 0);
    assert_eq!(spent(trial, &meter, 0).await.0, 0);
}

async fn a_refusal_says_how_long_to_wait(trial: &mut Trial<'_>) {
    let meter = meter("a", &[(5, secs(60))]);
    spent(trial, &meter, 3).await;
    let (room, wait) = full(trial, &meter, 3).await;
    assert_eq!(room, 2);
    // A of a minute is 60.669 s, and a bucket is 2.299 s. A busy machine may take 2 s. The last second covers the 20 ms
    // in which the units could be used.
    let wait = wait.unwrap_or_default();
    let bucket = Duration::from_millis(2299);
    let kept = Duration::from_millis(60_669);
    assert!(
        wait + secs(2) > kept && wait <= kept + bucket + secs(1),
        "{wait:?}"
    );
    assert_eq!(full(trial, &meter, 6).await, (2, None));
    assert_eq!(spent(trial, &meter, 2).await.0, 0);
}

async fn several_intervals_are_spent_together(trial: &mut Trial<'_>) {
    let both = meter("a", &[(2, secs(60)), (5, DAY)]);
    match say(trial, spend(&both, 2)).await {
        Answer::Spent { rooms, stamps } => assert_eq!((&*rooms, stamps.len()), (&[0, 3][..], 2)),
        other => panic!("{}: {other:?}", trial.name()),
    }
    assert_eq!(full(trial, &both, 1).await.0, 0);
    let taken: Vec<u32> = look(trial, &both)
        .await
        .iter()
        .map(|window| window.iter().map(|taken| taken.units).sum())
        .collect();
    assert_eq!(taken, [2, 2], "{}: a refusal took units", trial.name());
    // The longer interval alone has room.
    assert_eq!(spent(trial, &meter("a", &[(5, DAY)]), 1).await.0, 2);
    // The longest wait counts.
    let day = full(trial, &meter("a", &[(2, secs(60)), (5, DAY)]), 3).await;
    assert_eq!(day, (0, None));
}

async fn other_settings_are_counted_separately(trial: &mut Trial<'_>) {
    spent(trial, &meter("a", &[(2, secs(60))]), 2).await;
    let mut more = meter("a", &[(2, secs(60))]);
    more.masters = 5;
    for other in [
        meter("b", &[(2, secs(60))]),
        meter("a", &[(2, secs(61))]),
        more,
    ] {
        assert_eq!(look(trial, &other).await, [[].into()].into(), "{other:?}");
        spent(trial, &other, 2).await;
    }
    full(trial, &meter("a", &[(2, secs(60))]), 1).await;
}

async fn different_limits_of_an_interval_share_one_count(trial: &mut Trial<'_>) {
    let of = |share: u32| meter("a", &[(share, secs(60))]);
    spent(trial, &of(5), 3).await;
    let taken = look(trial, &of(2)).await;
    assert_eq!(taken.iter().flatten().map(|t| t.units).sum::<u32>(), 3);
    // The smaller limit has no room, and its wait is that for enough of the others' units. More than its share never
    // comes.
    let (room, wait) = full(trial, &of(2), 1).await;
    assert!(
        room == 0 && wait.is_some_and(|wait| wait > secs(59)),
        "{wait:?}"
    );
    assert_eq!(full(trial, &of(2), 3).await, (0, None));
    // The greater one has what the smaller one has left of it.
    assert_eq!(spent(trial, &of(5), 1).await.0, 1);
    let (room, stamps) = spent(trial, &of(9), 4).await;
    assert_eq!(room, 1);
    assert_eq!(full(trial, &of(5), 1).await.0, 0);
    // Units that one gives back are free for all.
    assert_eq!(refund(trial, &of(9), 4, &stamps).await, 1);
    assert_eq!(spent(trial, &of(5), 1).await.0, 0);
    // The count of an interval is the same beside another interval.
    let both = meter("a", &[(9, secs(60)), (2, DAY)]);
    assert_eq!(spent(trial, &both, 2).await.0, 0);
    assert_eq!(full(trial, &of(7), 1).await.0, 0);
}

async fn units_are_free_after_their_interval(trial: &mut Trial<'_>) {
    let meter = meter("a", &[(3, secs(1))]);
    spent(trial, &meter, 3).await;
    let (_, wait) = full(trial, &meter, 1).await;
    let wait = wait.unwrap_or_default();
    // A is 1,014 ms, a bucket is 39 ms, and the units could be used for 20 ms.
    assert!(wait <= Duration::from_millis(1_014 + 39 + 20), "{wait:?}");
    sleep(wait + Duration::from_millis(1)).await;
    assert_eq!(spent(trial, &meter, 3).await.0, 0);
}

async fn refunded_units_are_free_at_once(trial: &mut Trial<'_>) {
    let meter = meter("a", &[(5, secs(60)), (7, DAY)]);
    let (_, stamps) = spent(trial, &meter, 4).await;
    assert_eq!(refund(trial, &meter, 3, &stamps).await, 2);
    assert_eq!(spent(trial, &meter, 1).await.0, 3);
    let taken: u32 = look(trial, &meter)
        .await
        .iter()
        .flatten()
        .map(|t| t.units)
        .sum();
    assert_eq!(taken, 4);
}

async fn a_refund_needs_its_era(trial: &mut Trial<'_>) {
    let meter = meter("a", &[(5, secs(60))]);
    let (_, stamps) = spent(trial, &meter, 2).await;
    let other: Box<[Stamp]> = stamps
        .iter()
        .map(|stamp| Stamp {
            era: stamp.era + 1,
            ..*stamp
        })
        .collect();
    assert_eq!(refund(trial, &meter, 2, &other).await, 0);
    let far: Box<[Stamp]> = stamps
        .iter()
        .map(|stamp| Stamp {
            bucket: stamp.bucket + 100,
            ..*stamp
        })
        .collect();
    assert_eq!(refund(trial, &meter, 2, &far).await, 0);
    assert_eq!(refund(trial, &meter, 9, &stamps).await, 1);
    assert_eq!(spent(trial, &meter, 5).await.0, 0);
    let nobody = self::meter("b", &[(5, secs(60))]);
    assert_eq!(refund(trial, &nobody, 1, &stamps).await, 0);
}

async fn a_look_lists_the_taken_units(trial: &mut Trial<'_>) {
    let meter = meter("a", &[(5, Duration::from_millis(2000))]);
    assert_eq!(look(trial, &meter).await, [[].into()].into());
    spent(trial, &meter, 2).await;
    // This reaches another bucket: a bucket is 76 ms.
    sleep(Duration::from_millis(160)).await;
    spent(trial, &meter, 1).await;
    let seen = look(trial, &meter).await;
    let units: Vec<u32> = seen.iter().flatten().map(|taken| taken.units).collect();
    assert_eq!(units, [2, 1], "{}", trial.name());
    let left: Vec<Duration> = seen.iter().flatten().map(|taken| taken.left).collect();
    assert!(left.is_sorted(), "{left:?}");
    assert_eq!(look(trial, &meter).await.len(), 1);
}

async fn nothing_is_done_without_the_guard(trial: &mut Trial<'_>) {
    let meter = meter("a", &[(5, secs(60))]);
    let (_, stamps) = spent(trial, &meter, 1).await;
    let commands = [
        spend(&meter, 1),
        Units::Refund {
            meter: meter.clone(),
            units: 1,
            stamps,
        },
        Units::Look {
            meter: meter.clone(),
        },
    ];
    for command in commands {
        let (command, other) = (command.into(), "20000 3 3 word 5000 other");
        let answer = trial.ask_with(&command, other).await;
        assert_eq!(answer, Err(Fault::NotAdmitted));
    }
    assert_eq!(spent(trial, &meter, 1).await.0, 3);
}

async fn a_full_server_gives_nothing_out(trial: &mut Trial<'_>) {
    let meter = meter("a", &[(5, secs(60))]);
    trial.change(Change::Full(true)).await;
    let why = trial.error(spend(&meter, 1)).await;
    assert!(why.starts_with("OOM"), "{why}");
    trial.change(Change::Full(false)).await;
    assert_eq!(spent(trial, &meter, 1).await.0, 4);
}

/// Any command, for a few limits.
pub(crate) fn random(chance: &mut Chance) -> Units {
    // So long that a bucket rarely ends during the test.
    let hour = Duration::from_secs(3600);
    // Different limits of one interval share its count.
    let shares: &[(u32, Duration)] = match chance.up_to(5) {
        0 => &[(40, DAY)],
        1 => &[(9, hour)],
        2 => &[(4, hour)],
        3 => &[(15, hour), (25, DAY)],
        _ => &[(9, hour), (40, DAY)],
    };
    let meter = meter(chance.one(&["a", "7:b"]), shares);
    match chance.up_to(10) {
        0 => Units::Look { meter },
        1 => Units::Refund {
            units: 1,
            // The era does not exist.
            stamps: meter
                .windows
                .iter()
                .map(|_| Stamp { bucket: 1, era: 1 })
                .collect(),
            meter,
        },
        _ => Units::Spend {
            meter,
            units: chance.one(&[0, 1, 1, 1, 2, 3, 10, 41]),
            age: Duration::from_millis(chance.up_to(600_000)),
        },
    }
}

/// Equal except for times, which must be near each other.
pub(crate) fn alike(a: &Answer, b: &Answer) -> bool {
    match (a, b) {
        (
            Answer::Spent {
                rooms: a,
                stamps: x,
            },
            Answer::Spent {
                rooms: b,
                stamps: y,
            },
        ) => a == b && x.len() == y.len(),
        (Answer::Full { rooms: a, wait: x }, Answer::Full { rooms: b, wait: y }) => {
            a == b && near(*x, *y)
        }
        (Answer::Metered(a), Answer::Metered(b)) => {
            let both = a.iter().flatten().zip(b.iter().flatten());
            let units = |seen: &[Box<[TakenUnits]>]| -> u32 {
                seen.iter().flatten().map(|taken| taken.units).sum()
            };
            units(a) == units(b) && {
                let mut both = both;
                both.all(|(a, b)| a.units == b.units && near(Some(a.left), Some(b.left)))
            }
        }
        (a, b) => a == b,
    }
}

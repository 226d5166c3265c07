//! Answers, the state of the semaphore, and how the cases begin.

use super::*;

/// Sends a command that the node must answer.
pub(super) async fn say(trial: &mut Trial<'_>, command: impl Into<Command>) -> Answer {
    trial.say(command).await
}

/// The answer to a TAKE.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) mine: Option<(u32, u64)>,
    pub(super) taken: Vec<u32>,
    pub(super) version: u64,
    pub(super) may_take: bool,
    pub(super) ticket: u64,
    pub(super) next_free: Option<Duration>,
}

pub(super) async fn ask(trial: &mut Trial<'_>, command: Request) -> Answered {
    match say(trial, command).await {
        Answer::Slots(Slots {
            mine,
            taken,
            version,
            may_take,
            ticket,
            next_free,
        }) => Answered {
            mine,
            taken: taken.iter().collect(),
            version,
            may_take,
            ticket,
            next_free,
        },
        other => panic!("{}: {other:?}", trial.name()),
    }
}

pub(super) async fn mine(trial: &mut Trial<'_>, command: Request) -> Option<(u32, u64)> {
    ask(trial, command).await.mine
}

/// True if the first slot is free one ms after `held`, or about then.
pub(super) fn soon_free(next: Option<Duration>, held: Duration) -> bool {
    next.is_some_and(|next| about(next.saturating_sub(millis(1)), held))
}

pub(super) async fn inspected(trial: &mut Trial<'_>) -> PoolInspection {
    match say(trial, inspect()).await {
        Answer::InspectedPool(inspected) => *inspected,
        other => panic!("{}: {other:?}", trial.name()),
    }
}

/// Each taken slot with its holder.
pub(super) async fn holders(trial: &mut Trial<'_>) -> Vec<(u32, String)> {
    let holders = inspected(trial).await.holders;
    let holders = holders.into_iter();
    holders.map(|held| (held.slot, held.holder)).collect()
}

pub(super) fn held_by(all: &[(u32, u128)]) -> Vec<(u32, String)> {
    let texts = all.iter().map(|(slot, owner)| (*slot, entry(*owner)));
    texts
        .map(|(slot, entry)| (slot, entry.as_str().to_owned()))
        .collect()
}

/// The owners in the queue, in order.
pub(super) async fn in_line(trial: &mut Trial<'_>) -> Vec<String> {
    let PoolInspection { line, waiting, .. } = inspected(trial).await;
    assert_eq!(line.len() as u64, waiting);
    line.into_iter().map(|(entry, _)| entry).collect()
}

pub(super) fn owners(owners: &[u128]) -> Vec<String> {
    let texts = owners.iter().map(|owner| entry(*owner));
    texts.map(|entry| entry.as_str().to_owned()).collect()
}

pub(super) fn push(owner: u128, says: Says) -> Push {
    let entry = entry(owner);
    Push { entry, says }
}

/// The push that this slot is free.
pub(super) fn free(owner: u128, slot: u32) -> Push {
    push(owner, Says::Free { slot })
}

/// Fills all slots: the owners 101, 102, … hold them.
pub(super) async fn fill(trial: &mut Trial<'_>, limit: u32) {
    for slot in 0..limit {
        let taken = mine(trial, pick(&once(101 + u128::from(slot)), limit, slot)).await;
        assert_eq!(taken, Some((slot, P)));
    }
}

/// Fills all slots, and puts these into the queue in this order.
pub(super) async fn stand(trial: &mut Trial<'_>, limit: u32, seats: &[Seated]) {
    fill(trial, limit).await;
    for seated in seats {
        assert_eq!(mine(trial, wait(seated, limit)).await, None);
    }
    assert_eq!(trial.pushes().await, []);
}

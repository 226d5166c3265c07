//! Random sequences against a simple model: the owner that holds, its number of shares, and their token.

use std::collections::VecDeque;

use proptest::{prelude::*, test_runner::Config};

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Lock(usize),
    TryLock(usize),
    /// Begins a wait that goes on during the next steps.
    Wait(usize),
    /// Drops the oldest wait.
    GiveUp,
    Drop(usize),
    Release(usize),
    Sleep(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let owner = 0..2_usize;
    let step = prop_oneof![
        3 => owner.clone().prop_map(Step::Lock),
        3 => owner.clone().prop_map(Step::TryLock),
        2 => owner.prop_map(Step::Wait),
        1 => Just(Step::GiveUp),
        3 => any::<usize>().prop_map(Step::Drop),
        3 => any::<usize>().prop_map(Step::Release),
        1 => (0..20_000_u64).prop_map(Step::Sleep),
    ];
    proptest::collection::vec(step, 1..24)
}

/// The state of the model: the owner that holds, and its shares.
#[derive(Default)]
struct Model {
    owner: usize,
    shares: Vec<Lease>,
    waits: VecDeque<(usize, BoxFuture<'static, Result<Lease, Error>>)>,
    newest: u64,
}

impl Model {
    /// Notes a share of `owner`: a further one of its lock, or the first one of a new lock.
    fn entered(&mut self, owner: usize, lease: Lease) {
        let token = lease.token().as_u64();
        if let Some(share) = self.shares.first() {
            assert_eq!(self.owner, owner, "two owners hold");
            assert_eq!(share.token(), lease.token());
        } else {
            assert!(token > self.newest, "a new lock has a new token");
        }
        (self.owner, self.newest) = (owner, token);
        self.shares.push(lease);
    }

    fn held_by(&self) -> Option<usize> {
        (!self.shares.is_empty()).then_some(self.owner)
    }

    /// Polls the waits until none of them could hold the lock unnoticed.
    async fn look_at_waits(&mut self) {
        loop {
            let mut won = None;
            for (index, (owner, wait)) in self.waits.iter_mut().enumerate() {
                if let Some(answer) = wait.now_or_never() {
                    won = Some((index, *owner, answer.unwrap()));
                    break;
                }
            }
            let Some((index, owner, lease)) = won else {
                return;
            };
            drop(self.waits.remove(index));
            self.entered(owner, lease);
        }
    }
}

async fn play(steps: &[Step]) {
    let quorum = Quorum::in_memory(3);
    let mutex = quorum.reentrant_mutex("a");
    let brief = mutex.clone().wait_timeout(ms(50));
    let owners = [Owner::new(), Owner::new()];
    let mut model = Model::default();
    for step in steps {
        // A free lock goes to a waiter, if there is one.
        sleep(SOON * 3).await;
        model.look_at_waits().await;
        let held_by = model.held_by();
        assert!(
            held_by.is_some() || model.waits.is_empty(),
            "it is free, and they wait"
        );
        match *step {
            Step::Lock(owner) => {
                let lock = brief.lock(&owners[owner]).await;
                match held_by.is_none_or(|holder| holder == owner) {
                    true => model.entered(owner, lock.unwrap()),
                    false => assert!(matches!(lock, Err(Error::Held(_))), "{lock:?}"),
                }
            }
            Step::TryLock(owner) => {
                let lock = mutex.try_lock(&owners[owner]).await.unwrap();
                assert_eq!(lock.is_some(), held_by.is_none_or(|holder| holder == owner));
                if let Some(lease) = lock {
                    model.entered(owner, lease);
                }
            }
            Step::Wait(owner) => {
                let mut wait = mutex.lock(&owners[owner]).boxed();
                match (&mut wait).now_or_never() {
                    Some(lease) => model.entered(owner, lease.unwrap()),
                    None => model.waits.push_back((owner, wait)),
                }
            }
            Step::GiveUp => drop(model.waits.pop_front()),
            Step::Drop(n) | Step::Release(n) => {
                let Some(n) = n.checked_rem(model.shares.len()) else {
                    continue;
                };
                let share = model.shares.swap_remove(n);
                assert!(share.is_valid());
                let watch = share.watch();
                match step {
                    Step::Release(_) => share.release().await.unwrap(),
                    _ => drop(share),
                }
                assert!(!watch.is_valid());
            }
            Step::Sleep(for_ms) => sleep(ms(for_ms)).await,
        }
        assert!(model.shares.iter().all(Lease::is_valid));
    }
    drop(model);
    sleep(SOON).await;
    let seen = quorum.inspect("a").await.unwrap();
    assert!(
        seen.nodes.iter().all(|node| node.holder.is_none()),
        "{seen}"
    );
    owners.iter().for_each(|owner| keeps(owner, 0));
    assert!(quorum.mutex("a").try_lock().await.unwrap().is_some());
}

#[test]
fn a_thousand_random_sequences_do_as_the_model_does() {
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(1000)
    };
    proptest!(config, |(steps in steps())| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(play(&steps));
    });
}

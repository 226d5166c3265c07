//! Renewal, extension, loss and release.

use super::*;

/// The node timeout is longer than the lease. Without a second renewal one lost answer would lose the lease.
#[test]
fn a_short_lease_survives_a_lost_answer_to_its_renewal() {
    let mut world = World::new(3);
    let mut answer = world.ask(|acquisition| {
        acquisition.request.ttl = Duration::from_millis(600);
        acquisition.request.renewal = Renewal::auto();
    });
    for node in 0..3 {
        world.core.answered(node, [Ok(Answer::Granted(7))]);
    }
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    world.sent();
    world.at(200);
    assert_eq!(world.sent(), [(0, 'E'), (1, 'E'), (2, 'E')]);
    world.core.answered(0, [Ok(Answer::Extended)]);
    world.core.disconnected(1, &Disconnected("reset".into()));
    world.at(260);
    world.core.connected(1, 8, None, true);
    world.meet(1);
    world.sent();
    world.at(399);
    assert_eq!(
        world.sent(),
        [(0, 'E'), (1, 'E'), (2, 'E')],
        "node 2 is silent"
    );
    world.core.answered(0, [Ok(Answer::Extended)]);
    world.core.answered(1, [Ok(Answer::Extended)]);
    world.at(590);
    assert!(lease.is_valid() && lease.validity() > Duration::from_millis(300));
    world.sent();
    // The first one fails at last.
    world.at(720);
    assert!(lease.is_valid());
    assert!(world.sent().len() <= 2, "node 2 is stalled");
}

#[test]
fn a_node_that_was_flushed_does_not_make_a_release_lost() {
    let mut world = World::new(1);
    let mut answer = world.try_lock();
    world.core.answered(0, [Ok(Answer::Granted(7))]);
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    let id = world.core.first_lease().unwrap();
    let (reply, mut released) = oneshot::channel();
    world.core.event(Event::Release {
        lease: id,
        reply: Some(reply),
    });
    world.sent();
    world.core.answered(0, [Ok(Answer::ReleasedUnadmitted)]);
    let answer = released.try_recv().unwrap();
    assert!(matches!(answer, Err(Error::NoQuorum(_))), "{answer:?}");
    std::mem::forget(lease);
}

/// Looks at a lease when it is woken.
struct Looks(LeaseWatch, AtomicBool);

impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        self.1.store(self.0.is_valid(), Relaxed);
    }
}

/// Another thread may go on at once.
#[test]
fn a_caller_told_of_a_loss_finds_the_lease_already_lost() {
    let mut world = World::new(3);
    let (lease, id) = world.lease();
    let mut extended = world.extend(id);
    let looks = Arc::new(Looks(lease.watch(), AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&looks));
    let answer = pin!(&mut extended).poll(&mut Context::from_waker(&waker));
    assert!(answer.is_pending());
    world.says(0, Answer::Lost);
    assert!(lease.is_valid());
    world.says(1, Answer::Lost);
    assert!(matches!(extended.try_recv(), Ok(Err(Error::Lost(_)))));
    assert!(!looks.1.load(Relaxed), "told before");
}

/// Without this, one eviction on one node would make a release look lost when the other answers do not come.
#[test]
fn a_grant_after_the_win_counts_for_the_lease() {
    let mut world = World::new(3);
    let mut answer = world.try_lock();
    world.sent();
    for node in 0..2 {
        world.says(node, Answer::Granted(7));
    }
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    world.says(2, Answer::Granted(7));
    let id = world.core.first_lease().unwrap();
    let mut released = world.release(id);
    assert_eq!(world.sent(), [(0, 'R'), (1, 'R'), (2, 'R')]);
    world.says(0, Answer::Released(false));
    world.at(500);
    let answer = released.try_recv();
    assert!(
        matches!(answer, Ok(Err(Error::NoQuorum(_)))),
        "two may hold it still: {answer:?}"
    );
    drop(lease);
}

#[test]
fn a_release_goes_to_every_node_that_was_asked() {
    let mut world = World::new(3);
    let mut answer = world.try_lock();
    world.sent();
    for node in 0..2 {
        world.says(node, Answer::Granted(7));
    }
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    let id = world.core.first_lease().unwrap();
    let _released = world.release(id);
    assert_eq!(world.sent(), [(0, 'R'), (1, 'R'), (2, 'R')]);
    drop(lease);
}

/// All nodes share one object, so the part of the encoding that one node needs is not made again for the others.
#[test]
fn all_nodes_share_one_operation_object() {
    let mut world = World::new(5);
    let operations = |world: &mut World| -> Vec<_> {
        let effects = std::iter::from_fn(|| world.core.next_effect());
        let sent = effects.filter_map(|effect| match effect {
            Effect::Send(_, operation, _) => Some(operation),
            _ => None,
        });
        sent.collect()
    };
    let mut answer = world.try_lock();
    let mut rounds = vec![operations(&mut world)];
    for node in 0..5 {
        world.says(node, Answer::Granted(7));
    }
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    let id = world.core.first_lease().unwrap();
    let _extended = world.extend(id);
    rounds.push(operations(&mut world));
    let _released = world.release(id);
    rounds.push(operations(&mut world));
    for sent in &rounds {
        let same = sent
            .iter()
            .all(|operation| Arc::ptr_eq(operation, &sent[0]));
        assert!(sent.len() == 5 && same, "{sent:?}");
    }
    drop(lease);
}

/// Answers and events are read between the parts.
#[test]
fn thousands_of_renewals_that_are_due_at_once_leave_in_parts() {
    let all = 3 * TIMERS_AT_ONCE;
    let mut world = World::new(1);
    let mut leases = Vec::new();
    for i in 0..all {
        let mut answer = world.ask(|acquisition| {
            acquisition.request.wants =
                Wants::Lock(Target::mutex(Name::new(format!("a{i}")).unwrap()));
            acquisition.request.renewal = Renewal::auto();
        });
        world.sent();
        world.says(0, Answer::Granted(7));
        leases.push(answer.try_recv().unwrap().unwrap().unwrap());
    }
    world.pause_until(5000);
    let now = world.clock.now();
    let mut renewed = 0;
    while renewed < all {
        assert!(
            world.core.next_tick().is_some_and(|at| at <= now),
            "after {renewed}"
        );
        world.core.tick(now);
        let part = world.sent();
        assert!((1..=TIMERS_AT_ONCE).contains(&part.len()), "{}", part.len());
        assert!(part.iter().all(|sent| *sent == (0, 'E')), "{part:?}");
        renewed += part.len();
    }
    assert_eq!(renewed, all);
    assert!(world.core.next_tick().is_some_and(|at| at > now));
}

/// The holder may be in the queue on a node where it does not hold the lock. That node would hand it the lock again.
#[test]
fn an_evicted_holder_is_released_on_every_node_once() {
    let mut world = World::new(3);
    let (reply, mut answer) = oneshot::channel();
    let name = Name::new("a").unwrap();
    world.core.event(Event::Evict { name, reply });
    let released = |world: &mut World| {
        let sent = world.until_sent().into_iter();
        let entries = sent.filter_map(|(node, command)| {
            let entry = command.entry_that(Request::frees)?;
            Some((node, entry.text()))
        });
        entries.collect::<Vec<_>>()
    };
    let nobody = released(&mut world);
    assert_eq!(nobody.len(), 3);
    let owner = |digit: &str| Arc::<str>::from(format!("{}@web-1:77", digit.repeat(32)));
    let found = |holder: Option<Arc<str>>| Answer::Evicted {
        held: true,
        holders: holder.into_iter().collect(),
    };
    world.says(0, found(Some(owner("a"))));
    let everywhere = |whose: &str| (0..3).map(|node| (node, owner(whose))).collect::<Vec<_>>();
    assert_eq!(released(&mut world), everywhere("a"));
    world.says(1, found(Some(owner("a"))));
    assert_eq!(released(&mut world), [], "it is on its way");
    world.says(2, found(None));
    // The same for the holders of a read-write lock.
    let shares = |whose: &[&str]| Answer::Evicted {
        held: !whose.is_empty(),
        holders: whose.iter().map(|one| owner(one)).collect(),
    };
    world.core.answered(0, [Ok(shares(&["b", "c"]))]);
    let of_both = [everywhere("b"), everywhere("c")].concat();
    assert_eq!(released(&mut world), of_both);
    world.core.answered(1, [Ok(shares(&["c"]))]);
    assert_eq!(released(&mut world), [], "it is on its way");
    assert!(is_open(&mut answer));
    world.core.answered(2, [Ok(shares(&[]))]);
    assert!(matches!(answer.try_recv(), Ok(Ok(true))));
    assert_eq!(released(&mut world), []);
}

//! Leases that are put back on nodes that have lost them.

use super::*;

const ALL: [(usize, char); 3] = [(0, 'E'), (1, 'E'), (2, 'E')];

fn extended(world: &mut World, nodes: &[usize]) {
    for &node in nodes {
        world.says(node, Answer::Extended);
    }
}

#[test]
fn a_node_that_lost_it_is_repaired_once_a_majority_has_extended() {
    let mut world = World::new(3);
    let (lease, id) = world.lease();
    let mut extension = world.extend(id);
    assert_eq!(world.sent(), ALL);
    world.says(0, Answer::Lost);
    extended(&mut world, &[1]);
    assert_eq!(world.sent(), [], "no majority yet");
    extended(&mut world, &[2]);
    assert!(matches!(extension.try_recv(), Ok(Ok(()))));
    assert_eq!(world.sent(), [(0, 'P')]);

    // A second EXTEND while the repair is under way. It arrives behind the repair, so its answer says how that went.
    let _second = world.extend(id);
    assert_eq!(world.sent(), ALL);
    world.says(0, Answer::Repaired(true));
    extended(&mut world, &[0, 1, 2]);
    assert_eq!(world.sent(), []);
    assert!(lease.is_valid());
}

#[test]
fn a_node_that_reports_its_loss_after_the_majority_is_repaired() {
    let mut world = World::new(3);
    let (lease, id) = world.lease();
    let mut extension = world.extend(id);
    world.sent();
    extended(&mut world, &[0, 1]);
    assert!(matches!(extension.try_recv(), Ok(Ok(()))));
    assert_eq!(world.sent(), []);
    world.says(2, Answer::Lost);
    assert_eq!(world.sent(), [(2, 'P')]);
    assert!(lease.is_valid());
}

#[test]
fn without_a_majority_no_node_is_repaired() {
    for verdict in [Answer::Lost, Answer::Extended] {
        let mut world = World::new(3);
        let (lease, id) = world.lease();
        let mut extension = world.extend(id);
        assert_eq!(world.sent(), ALL);
        let is_evicted = verdict == Answer::Lost;
        world.says(0, Answer::Lost);
        world.says(1, verdict);
        // The third node stays silent.
        world.at(600);
        let answer = extension.try_recv();
        match is_evicted {
            true => assert!(matches!(answer, Ok(Err(Error::Lost(_)))), "{answer:?}"),
            false => assert!(matches!(answer, Ok(Err(Error::NoQuorum(_)))), "{answer:?}"),
        }
        assert_eq!(world.sent(), []);
        drop(lease);
    }
}

/// The REPAIR may have arrived, or may still arrive. The next EXTEND shows it.
#[test]
fn a_repair_is_not_a_vote_and_is_retried_after_the_next_majority() {
    let mut world = World::new(3);
    let (lease, id) = world.lease();
    let _first = world.extend(id);
    world.says(0, Answer::Lost);
    extended(&mut world, &[1, 2]);
    world.sent();
    let mut second = world.extend(id);
    assert_eq!(world.sent(), ALL);
    world.says(0, Answer::Repaired(true));
    world.says(1, Answer::Extended);
    assert!(is_open(&mut second), "one has extended, one was repaired");
    world.says(0, Answer::Lost);
    world.says(2, Answer::Extended);
    assert!(matches!(second.try_recv(), Ok(Ok(()))));
    assert_eq!(world.sent(), [(0, 'P')], "lost again");
    world.says(0, Answer::Repaired(false));
    assert_eq!(world.sent(), [], "another holds it there");
    let _third = world.extend(id);
    world.says(0, Answer::Lost);
    world.sent();
    extended(&mut world, &[1, 2]);
    assert_eq!(world.sent(), [(0, 'P')]);
    drop(lease);
}

#[test]
fn a_grant_with_a_smaller_token_is_brought_up() {
    let mut world = World::new(3);
    let mut answer = world.try_lock();
    world.sent();
    for (node, counter) in [(0, 7), (2, 7), (1, 6)] {
        world.says(node, Answer::Granted(counter));
    }
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    let id = world.core.first_lease().unwrap();
    for sent in [&[(1, 'P')][..], &[]] {
        let _extension = world.extend(id);
        assert_eq!(world.sent(), ALL);
        extended(&mut world, &[0, 1, 2]);
        assert_eq!(world.sent(), sent);
        if !sent.is_empty() {
            world.says(1, Answer::Repaired(true));
        }
    }
    drop(lease);
}

/// The connection carries the REPAIR before the RELEASE.
#[test]
fn a_release_follows_every_repair_that_was_sent() {
    let mut world = World::new(5);
    world.core.disconnected(4, &Disconnected("reset".into()));
    let mut answer = world.try_lock();
    for node in 0..4 {
        world.says(node, Answer::Granted(7));
    }
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    let id = world.core.first_lease().unwrap();
    world.core.connected(4, 8, None, true);
    world.meet(4);
    world.sent();
    let _extension = world.extend(id);
    world.sent();
    extended(&mut world, &[0, 1, 2]);
    world.says(4, Answer::Lost);
    assert_eq!(world.sent(), [(4, 'P')]);
    let _released = world.release(id);
    let everywhere = [(0, 'R'), (1, 'R'), (2, 'R'), (3, 'R'), (4, 'R')];
    let mut sent = world.sent();
    sent.sort_unstable();
    assert_eq!(sent, everywhere);
    // The last answer to its extension comes when the lease is no longer held.
    world.says(3, Answer::Lost);
    world.says(4, Answer::Repaired(true));
    assert_eq!(world.sent(), []);
    drop(lease);
}

#[test]
fn a_lease_that_is_over_is_not_repaired() {
    let mut world = World::new(3);
    let (lease, id) = world.lease();
    let _extension = world.extend(id);
    world.sent();
    extended(&mut world, &[0, 1]);
    world.pause_until(20_000);
    world.says(2, Answer::Lost);
    assert!(!lease.is_valid());
    assert!(world.sent().iter().all(|(_, what)| *what != 'P'));
}

//! Where one step hands over to another.

use super::*;
use crate::{
    base::{
        limit::Agreed,
        quota::{Stamp, Window},
    },
    engine::event::{Spending, Waits},
    node::{
        answer::PoolInspection,
        request::{Family, Pool, Units},
    },
    protocol::rates::words::{Amount, Grace, Limited},
};

#[test]
fn a_renewal_that_failed_is_tried_again_soon() {
    let mut world = World::new(3);
    let mut answer = world.ask(|acquisition| acquisition.request.renewal = Renewal::auto());
    world.sent();
    world.all_say(&[const { Answer::Granted(7) }; 3]);
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    let renewed = [(0, 'E'), (1, 'E'), (2, 'E')];
    world.at(3_400);
    assert_eq!(world.sent(), renewed);
    for node in 0..3 {
        let busy = Fault::Error("BUSY".into());
        world.core.answered(node, [Err(busy)]);
    }
    // A 24th of the ttl.
    world.at(3_400 + 420);
    assert_eq!(world.sent(), renewed);
    assert!(lease.is_valid());
}

/// No node is left to answer the second question, so nothing would come that ends it.
#[test]
fn a_resize_ends_at_once_when_all_nodes_die_after_its_first_question() {
    let mut world = World::new(3);
    let (reply, mut answer) = oneshot::channel();
    world.core.event(Event::Resize {
        pool: Pool {
            name: Name::new("a").unwrap(),
            family: Family::Permits,
        },
        agreed: Arc::new(Agreed::new(3)),
        to: 5,
        reply,
    });
    world.until_sent();
    for node in 0..2 {
        let found = Box::new(PoolInspection::default());
        world.says(node, Answer::InspectedPool(found));
    }
    for node in 0..3 {
        assert!(is_open(&mut answer));
        let died = Disconnected("died".into());
        world.core.disconnected(node, &died);
    }
    assert!(matches!(answer.try_recv(), Ok(Err(Error::NoQuorum(_)))));
}

#[test]
fn units_go_back_if_another_node_has_too_few() {
    let mut world = World::new(3);
    let (reply, _answer) = oneshot::channel();
    let window = Window {
        period: Duration::from_secs(1),
        limit: 3_000,
    };
    world.core.event(Event::Spend(Spending {
        limited: Arc::new(Limited {
            name: Name::new("a").unwrap(),
            windows: [window].into(),
        }),
        amount: Amount::exactly(1_500),
        grace: Grace {
            least: Duration::from_millis(100),
            most: Duration::from_secs(1),
        },
        waits: Waits::Never,
        reply,
    }));
    let asked = world.until_sent();
    assert_eq!(asked.len(), 2, "{asked:?}");
    let (gives, refuses) = (asked[0].0, asked[1].0);
    let rooms = || [0].into();
    let stamps = [Stamp { bucket: 7, era: 1 }].into();
    world.says(
        gives,
        Answer::Spent {
            rooms: rooms(),
            stamps,
        },
    );
    let full = Answer::Full {
        rooms: rooms(),
        wait: None,
    };
    world.says(refuses, full);
    let sent = world.until_sent();
    let back = sent
        .iter()
        .filter(|(_, command)| matches!(command, Command::Rate(Units::Refund { .. })));
    let back: Vec<usize> = back.map(|(node, _)| *node).collect();
    assert_eq!(back, [gives], "{sent:?}");
}

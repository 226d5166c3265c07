//! Cases about connections and scripts, for every kind of node.

// A failed case panics, as a test does.
#![allow(clippy::expect_used, clippy::panic)]

use std::{future::poll_fn, time::Duration};

use tokio::time::timeout;

use super::{Command, Reply};
use crate::{
    node::{
        Guard, Operation,
        answer::Answer,
        mutex::cases::{acquire, extend, raise, release, secs},
    },
    testing::conformance::{
        case::{Case, case},
        trial::{GUARD, Trial, answers},
    },
};

pub(crate) const CASES: &[Case] = &[
    case!(
        "Connection: the answers come in the order of the commands, of any kind.",
        a_batch_is_answered_in_order
    ),
    case!(
        "Connection: a withdrawn operation has not left, and is not executed.",
        withdrawn_operations_are_not_executed
    ),
    case!(
        "§2 NOSCRIPT: the scripts can be loaded at any time.",
        scripts_can_be_loaded_again
    ),
    case!(
        "§3 client 5: each connection has an id of its own.",
        each_connection_has_its_id
    ),
    case!(
        "§3 client 5: an older connection of the client is ended, with the requests that still travel on it.",
        an_older_connection_can_be_ended,
        Kill
    ),
];

async fn a_batch_is_answered_in_order(trial: &mut Trial<'_>) {
    let nobody = Command::Disconnect {
        client: u64::MAX >> 1,
    };
    let answers = trial
        .ask_all(&[
            acquire("a", 1, secs(10), 3).into(),
            release("a", 2).into(),
            Command::LoadScripts.into(),
            raise("a", 1, 4).into(),
            extend("a", 1, secs(10)).into(),
            nobody.into(),
            release("a", 1).into(),
            acquire("a", 2, secs(10), 0).into(),
        ])
        .await;
    let wanted = [
        Answer::Granted(3),
        Answer::Released(false),
        Answer::Server(Reply::Loaded),
        Answer::Raised(4),
        Answer::Extended,
        Answer::Server(Reply::Disconnected(false)),
        Answer::Released(true),
        Answer::Granted(5),
    ];
    assert_eq!(answers, wanted.map(Ok), "{}", trial.name());
}

async fn withdrawn_operations_are_not_executed(trial: &mut Trial<'_>) {
    let mut connection = trial.another().await;
    for name in ["a", "b"] {
        let operation = Operation::new(acquire(name, 1, secs(10), 0));
        connection.send(operation, Guard::new(GUARD.into()));
    }
    let withdrawn = connection.withdraw();
    let left = answers(&mut *connection, 2 - withdrawn).await;
    assert_eq!(left.expect("answers").len(), 2 - withdrawn);
    let free = [
        trial.say(release("a", 1)).await,
        trial.say(release("b", 1)).await,
    ];
    // The operations sent last are taken back first.
    let released = |there| Answer::Released(there);
    assert_eq!(free, [released(withdrawn < 2), released(withdrawn < 1)]);
}

async fn scripts_can_be_loaded_again(trial: &mut Trial<'_>) {
    for token in 1..=2 {
        let loaded = trial.say(Command::LoadScripts).await;
        assert_eq!(loaded, Answer::Server(Reply::Loaded));
        let granted = trial.say(acquire("a", 1, secs(10), 0)).await;
        assert_eq!(granted, Answer::Granted(token));
        trial.say(release("a", 1)).await;
    }
}

async fn each_connection_has_its_id(trial: &mut Trial<'_>) {
    let (one, two) = (trial.another().await, trial.another().await);
    assert_ne!(one.client_id(), two.client_id(), "{}", trial.name());
}

async fn an_older_connection_can_be_ended(trial: &mut Trial<'_>) {
    let mut old = trial.another().await;
    let client = old.client_id();
    for there in [true, false] {
        let ended = trial.say(Command::Disconnect { client }).await;
        assert_eq!(ended, Answer::Server(Reply::Disconnected(there)));
    }
    let over = poll_fn(|cx| old.poll_incoming(cx));
    // A trial waits for an answer for the same time.
    match timeout(Duration::from_secs(20), over).await {
        Ok(Err(_)) => {}
        other => panic!("{}: {other:?}", trial.name()),
    }
}

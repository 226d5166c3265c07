//! Any sequence of transactions, one after the other, gets the same answers as from a map.

use std::collections::HashMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use quorate::fence::postgres::{Error, admit};
use tokio_postgres::Client;

use super::{newest, start, token};

#[derive(Clone, Debug)]
struct Step {
    resource: &'static str,
    number: u64,
    commit: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let resource = prop_oneof![Just("a"), Just("b"), Just("")];
    let step = (resource, 0..8_u64, prop::bool::weighted(0.7));
    let step = step.prop_map(|(resource, number, commit)| Step {
        resource,
        number,
        commit,
    });
    prop::collection::vec(step, 1..30)
}

async fn same_as_a_map(client: &mut Client, steps: &[Step]) {
    client
        .batch_execute("TRUNCATE quorate_fence")
        .await
        .unwrap();
    let mut map = HashMap::<&str, u64>::new();
    for step in steps {
        let transaction = client.transaction().await.unwrap();
        let answer = admit(&transaction, step.resource, token(step.number)).await;
        let before = map.get(step.resource).copied();
        match answer {
            Ok(()) => {
                assert!(
                    before.is_none_or(|newest| newest <= step.number),
                    "{step:?}"
                );
                if step.commit {
                    transaction.commit().await.unwrap();
                    map.insert(step.resource, step.number);
                } else {
                    transaction.rollback().await.unwrap();
                }
            }
            Err(Error::Stale(stale)) => {
                assert_eq!(before, Some(stale.newest.as_u64()), "{step:?}");
                assert!(stale.newest.as_u64() > step.number, "{step:?}");
                // Even if the refused transaction is committed, the stored token does not go back.
                if step.commit {
                    transaction.commit().await.unwrap();
                }
            }
            Err(error) => panic!("{step:?}: {error}"),
        }
    }
    for (resource, number) in map {
        assert_eq!(newest(client, resource).await, i64::try_from(number).ok());
    }
}

#[test]
fn any_sequence_of_admissions_answers_as_a_map_does() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (_server, client) = runtime.block_on(start());
    let client = std::cell::RefCell::new(client);
    TestRunner::new(Config {
        cases: 100,
        failure_persistence: None,
        ..Config::default()
    })
    .run(&steps(), |steps| {
        runtime.block_on(same_as_a_map(&mut client.borrow_mut(), &steps));
        Ok(())
    })
    .unwrap();
}

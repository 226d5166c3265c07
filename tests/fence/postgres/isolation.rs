//! Two holders at once, step by step.

use quorate::fence::postgres::admit;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, IsolationLevel, Transaction};

use super::{
    PATIENCE, WRITE, admit_alone, connect, database_error, logged, newest, stale, start, token,
    until_waiting,
};
use crate::support::Postgres;

/// A client that watches, and two holders.
async fn start_three() -> (Postgres, [Client; 3]) {
    let (server, client) = start().await;
    let others = (connect(&server).await, connect(&server).await);
    (server, [client, others.0, others.1])
}

/// Empties the tables. With `row` the resource already has its row. Otherwise the first of the two holders inserts it.
async fn start_over(client: &mut Client, row: bool) {
    let truncate = "TRUNCATE quorate_fence, log";
    client.batch_execute(truncate).await.unwrap();
    if row {
        admit_alone(client, "a", 1).await.unwrap();
    }
}

/// Admits in `second` while `first`, which was admitted, has not ended. Then ends `first`.
async fn meet(
    watch: &Client,
    first: Transaction<'_>,
    commit: bool,
    second: &Transaction<'_>,
    number: u64,
) -> Result<(), quorate::fence::postgres::Error> {
    let end = async {
        until_waiting(watch, 1).await;
        if commit {
            first.commit().await.unwrap();
        } else {
            first.rollback().await.unwrap();
        }
    };
    tokio::join!(admit(second, "a", token(number)), end).0
}

#[tokio::test]
async fn a_newer_one_waits_for_an_older_one_that_is_half_way_and_sees_its_write() {
    let (_server, [mut watch, mut older, mut newer]) = start_three().await;
    for row in [false, true] {
        start_over(&mut watch, row).await;
        let first = older.transaction().await.unwrap();
        admit(&first, "a", token(5)).await.unwrap();
        first.execute(WRITE, &[&5_i64]).await.unwrap();
        let second = newer.transaction().await.unwrap();
        meet(&watch, first, true, &second, 8).await.unwrap();
        let seen = second.query("SELECT token FROM log", &[]).await.unwrap();
        assert_eq!(seen[0].get::<_, i64>(0), 5);
        second.commit().await.unwrap();

        // It comes later, so it is too late.
        assert_eq!(
            stale(admit_alone(&mut older, "a", 5).await).newest,
            token(8)
        );
        assert_eq!(newest(&watch, "a").await, Some(8));
    }
}

#[tokio::test]
async fn an_older_one_waits_too_and_is_refused_only_if_the_newer_one_commits() {
    let (_server, [mut watch, mut newer, mut older]) = start_three().await;
    for row in [false, true] {
        for commit in [false, true] {
            start_over(&mut watch, row).await;
            let first = newer.transaction().await.unwrap();
            admit(&first, "a", token(8)).await.unwrap();
            let second = older.transaction().await.unwrap();
            let answer = meet(&watch, first, commit, &second, 5).await;
            if commit {
                assert_eq!(stale(answer).newest, token(8));
                continue;
            }
            answer.unwrap();
            second.commit().await.unwrap();
            assert_eq!(newest(&watch, "a").await, Some(5));
        }
    }
}

/// The row is locked from the refusal to the rollback, so a waiting transaction does not get in between.
#[tokio::test]
async fn a_refused_one_holds_the_row_until_it_is_rolled_back() {
    let (_server, [watch, mut older, mut newer]) = start_three().await;
    admit_alone(&mut newer, "a", 8).await.unwrap();
    let first = older.transaction().await.unwrap();
    stale(admit(&first, "a", token(7)).await);
    let second = newer.transaction().await.unwrap();
    meet(&watch, first, false, &second, 9).await.unwrap();
}

#[tokio::test]
async fn stricter_isolation_ends_the_second_of_two() {
    let (_server, [mut watch, mut first, mut second]) = start_three().await;
    for isolation in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        for row in [false, true] {
            for (one, two) in [(5, 8), (8, 5), (5, 5)] {
                start_over(&mut watch, row).await;
                let first = first.build_transaction().isolation_level(isolation);
                let first = first.start().await.unwrap();
                admit(&first, "a", token(one)).await.unwrap();
                let second = second.build_transaction().isolation_level(isolation);
                let second = second.start().await.unwrap();
                let answer = meet(&watch, first, true, &second, two).await;
                assert_eq!(database_error(answer), SqlState::T_R_SERIALIZATION_FAILURE);
            }
        }
    }
}

/// The transaction may have read old data, so it may not go on, even with a newer token.
#[tokio::test]
async fn stricter_isolation_aborts_a_transaction_that_read_before() {
    let (_server, [mut watch, mut reader, mut other]) = start_three().await;
    for number in [5, 8, 9] {
        start_over(&mut watch, true).await;
        let transaction = reader.build_transaction();
        let transaction = transaction.isolation_level(IsolationLevel::RepeatableRead);
        let transaction = transaction.start().await.unwrap();
        transaction
            .query("SELECT token FROM log", &[])
            .await
            .unwrap();
        admit_alone(&mut other, "a", 8).await.unwrap();
        let answer = admit(&transaction, "a", token(number)).await;
        assert_eq!(database_error(answer), SqlState::T_R_SERIALIZATION_FAILURE);
        drop(transaction);
        // When it is repeated it gets an answer.
        match number {
            5 => drop(stale(admit_alone(&mut reader, "a", number).await)),
            _ => admit_alone(&mut reader, "a", number).await.unwrap(),
        }
    }
}

/// Under READ COMMITTED nothing ends the transaction, so the admission has to come first.
#[tokio::test]
async fn a_read_before_the_admission_may_be_old() {
    let (_server, [_, mut reader, mut other]) = start_three().await;
    let transaction = reader.transaction().await.unwrap();
    let before = transaction
        .query("SELECT token FROM log", &[])
        .await
        .unwrap();
    let holder = other.transaction().await.unwrap();
    admit(&holder, "a", token(8)).await.unwrap();
    holder.execute(WRITE, &[&8_i64]).await.unwrap();
    holder.commit().await.unwrap();
    admit(&transaction, "a", token(9)).await.unwrap();
    let after = transaction
        .query("SELECT token FROM log", &[])
        .await
        .unwrap();
    assert_eq!((before.len(), after.len()), (0, 1));
}

#[tokio::test]
async fn two_resources_in_opposite_order_are_a_deadlock_that_postgres_ends() {
    let (server, [watch, mut one, mut two]) = start_three().await;
    let first = one.transaction().await.unwrap();
    admit(&first, "a", token(5)).await.unwrap();
    let second = two.transaction().await.unwrap();
    admit(&second, "b", token(5)).await.unwrap();
    let crossed = tokio::join!(
        async {
            let answer = admit(&first, "b", token(5)).await;
            drop(first); // no matter how it ended, the other transaction need not wait for it
            answer
        },
        async {
            let answer = admit(&second, "a", token(5)).await;
            drop(second);
            answer
        },
    );
    let refused = match crossed {
        (Ok(()), refused) | (refused, Ok(())) => refused,
        both => panic!("{both:?}"),
    };
    assert_eq!(database_error(refused), SqlState::T_R_DEADLOCK_DETECTED);
    assert_eq!(logged(&watch).await, [0; 0]);
    drop(server);
}

/// A holder that is paused inside its transaction blocks all others until the server ends its session. It has written
/// nothing then, and it learns that.
#[tokio::test]
async fn one_paused_in_its_transaction_blocks_the_next_until_the_server_ends_it() {
    let (_server, [watch, mut paused, mut next]) = start_three().await;
    next.batch_execute("SET lock_timeout = '50ms'")
        .await
        .unwrap();
    let first = paused.transaction().await.unwrap();
    admit(&first, "a", token(5)).await.unwrap();
    first.execute(WRITE, &[&5_i64]).await.unwrap();

    let blocked = admit_alone(&mut next, "a", 8).await;
    assert_eq!(database_error(blocked), SqlState::LOCK_NOT_AVAILABLE);
    next.batch_execute("SET lock_timeout = 0").await.unwrap();
    // The pause begins after the block was seen. It would end before that on a slow machine.
    let pause = "SET idle_in_transaction_session_timeout = '500ms'";
    first.batch_execute(pause).await.unwrap();
    let second = next.transaction().await.unwrap();
    tokio::time::timeout(PATIENCE, admit(&second, "a", token(8)))
        .await
        .expect("the server lets it through")
        .unwrap();
    second.execute(WRITE, &[&8_i64]).await.unwrap();
    second.commit().await.unwrap();

    first.commit().await.unwrap_err();
    assert_eq!(logged(&watch).await, [8]);
    assert_eq!(newest(&watch, "a").await, Some(8));
}

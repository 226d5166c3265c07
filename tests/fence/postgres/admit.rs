//! One client: which tokens are admitted, which are refused, and what stays in the tables.

use futures::FutureExt;
use quorate::fence::postgres::{Error, SCHEMA, admit};
use tokio::try_join;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::{
    WRITE, admit_alone, connect, database_error, logged, newest, stale, start, token, until_waiting,
};

#[tokio::test]
async fn the_table_can_be_created_again_and_again() {
    let (_server, mut client) = start().await;
    admit_alone(&mut client, "a", 5).await.unwrap();
    client.batch_execute(SCHEMA).await.unwrap();
    assert_eq!(newest(&client, "a").await, Some(5));
}

#[tokio::test]
async fn first_equal_and_newer_pass_and_an_older_one_is_told_both_tokens() {
    let (_server, mut client) = start().await;
    for number in [5, 5, 8] {
        admit_alone(&mut client, "a", number).await.unwrap();
        assert_eq!(newest(&client, "a").await, i64::try_from(number).ok());
    }
    let error = admit_alone(&mut client, "a", 7).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "token 7 is stale for \"a\": token 8 was there already"
    );
    assert!(std::error::Error::source(&error).is_none());
    assert_eq!(error.stale().unwrap().newest, token(8));
    let stale = stale(Err(error));
    assert_eq!((stale.token, stale.newest), (token(7), token(8)));
    assert_eq!((stale.resource.as_str(), stale.forgotten), ("a", false));
    assert_eq!(newest(&client, "a").await, Some(8));

    // Another resource is independent of this one.
    admit_alone(&mut client, "b", 1).await.unwrap();
}

#[tokio::test]
async fn writes_of_a_stale_transaction_are_rolled_back() {
    let (_server, mut client) = start().await;
    admit_alone(&mut client, "a", 8).await.unwrap();
    let transaction = client.transaction().await.unwrap();
    transaction.execute(WRITE, &[&7_i64]).await.unwrap();
    stale(admit(&transaction, "a", token(7)).await);
    drop(transaction);
    assert_eq!(logged(&client).await, [0; 0]);
}

/// As in the example of `admit`: both are sent at once.
async fn pipelined(
    client: &mut tokio_postgres::Client,
    write: &str,
    number: u64,
) -> Result<(), Error> {
    let transaction = client.transaction().await?;
    let parameter = i64::try_from(number).unwrap();
    let parameters = [(&parameter as _, Type::INT8)];
    let written = transaction.execute_typed(write, &parameters);
    try_join!(biased; admit(&transaction, "a", token(number)), async {
        written.await.map_err(Error::from)
    })?;
    Ok(transaction.commit().await?)
}

#[tokio::test]
async fn a_write_that_was_sent_along_is_kept_or_gone_with_the_admission() {
    let (_server, mut client) = start().await;
    pipelined(&mut client, WRITE, 8).await.unwrap();
    stale(pipelined(&mut client, WRITE, 7).await);
    assert_eq!(logged(&client).await, [8]);
}

#[tokio::test]
async fn a_stale_token_is_named_even_if_the_write_sent_along_fails_by_itself() {
    let (_server, mut client) = start().await;
    admit_alone(&mut client, "a", 8).await.unwrap();
    let fails = "INSERT INTO log (token) VALUES ($1 / 0)";
    let stale = stale(pipelined(&mut client, fails, 7).await);
    assert_eq!(stale.newest, token(8));
    // An admitted caller gets the error of its write.
    let error = pipelined(&mut client, fails, 9).await;
    assert_eq!(database_error(error), SqlState::DIVISION_BY_ZERO);
    assert_eq!(newest(&client, "a").await, Some(8));
}

#[tokio::test]
async fn a_rolled_back_admission_has_no_effect() {
    let (_server, mut client) = start().await;
    admit_alone(&mut client, "a", 5).await.unwrap();
    let transaction = client.transaction().await.unwrap();
    admit(&transaction, "a", token(9)).await.unwrap();
    transaction.rollback().await.unwrap();
    // Nothing was written with token 9 either, so 7 is not late.
    admit_alone(&mut client, "a", 7).await.unwrap();
    assert_eq!(newest(&client, "a").await, Some(7));
}

#[tokio::test]
async fn a_savepoint_that_is_rolled_back_takes_its_admission_along() {
    let (server, mut client) = start().await;
    let mut other = connect(&server).await;
    let mut outer = client.transaction().await.unwrap();
    let inner = outer.transaction().await.unwrap();
    admit(&inner, "a", token(5)).await.unwrap();
    inner.rollback().await.unwrap();
    // The row is free, so nobody waits for the outer transaction, which is not fenced any more. It has to be admitted
    // itself, outside of the savepoint.
    admit_alone(&mut other, "a", 8).await.unwrap();
    stale(admit(&outer, "a", token(5)).await);
    drop(outer);

    let mut outer = client.transaction().await.unwrap();
    let inner = outer.transaction().await.unwrap();
    admit(&inner, "a", token(9)).await.unwrap();
    inner.commit().await.unwrap();
    outer.commit().await.unwrap();
    assert_eq!(newest(&client, "a").await, Some(9));
}

#[tokio::test]
async fn a_dropped_admission_takes_effect_only_with_a_commit() {
    let (server, mut client) = start().await;
    let mut other = connect(&server).await;

    // The admission is never sent.
    let transaction = client.transaction().await.unwrap();
    drop(admit(&transaction, "a", token(5)));
    transaction.commit().await.unwrap();
    assert_eq!(newest(&client, "a").await, None);

    // The admission is sent, but its answer is not awaited. It is undone with the transaction, which can still be
    // rolled back.
    let transaction = client.transaction().await.unwrap();
    assert!(admit(&transaction, "a", token(5)).now_or_never().is_none());
    transaction.rollback().await.unwrap();
    assert_eq!(newest(&client, "a").await, None);

    // The future is dropped while it waits for another holder. The server still waits, and the rollback waits behind
    // it.
    let holder = other.transaction().await.unwrap();
    admit(&holder, "a", token(6)).await.unwrap();
    let transaction = client.transaction().await.unwrap();
    {
        let mut waits = Box::pin(admit(&transaction, "a", token(7)));
        let watch = connect(&server).await;
        tokio::select! {
            answer = &mut waits => panic!("{answer:?}"),
            () = until_waiting(&watch, 1) => {}
        }
    }
    drop(transaction);
    holder.commit().await.unwrap();
    assert_eq!(newest(&client, "a").await, Some(6));
}

/// So the documentation says: do not commit after a refusal.
#[tokio::test]
async fn committing_after_a_dropped_refusal_is_not_fenced() {
    let (_server, mut client) = start().await;
    admit_alone(&mut client, "a", 8).await.unwrap();
    let transaction = client.transaction().await.unwrap();
    assert!(admit(&transaction, "a", token(7)).now_or_never().is_none());
    transaction.execute(WRITE, &[&7_i64]).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(logged(&client).await, [7], "a stale write");
    assert_eq!(newest(&client, "a").await, Some(8), "the mark at least");
}

#[tokio::test]
async fn without_the_table_the_error_names_it() {
    let (_server, mut client) = start().await;
    client
        .batch_execute("DROP TABLE quorate_fence")
        .await
        .unwrap();
    let error = admit_alone(&mut client, "a", 5).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("\"quorate_fence\" does not exist"), "{text}");
    // An error that is printed with its sources does not repeat a text.
    assert!(std::error::Error::source(&error).is_none());
    assert!(error.stale().is_none());
    assert_eq!(database_error(Err(error)), SqlState::UNDEFINED_TABLE);
}

#[tokio::test]
async fn a_connection_that_breaks_is_an_error() {
    let (server, mut client) = start().await;
    let transaction = client.transaction().await.unwrap();
    server.kill9();
    match admit(&transaction, "a", token(5)).await {
        Err(Error::Postgres(error)) => {
            assert!(error.is_closed() || error.code().is_some(), "{error}")
        }
        other => panic!("{other:?}"),
    }
}

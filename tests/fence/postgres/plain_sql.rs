//! `ADMIT_SQL` as other drivers send it. It changes one row, or none.

use quorate::fence::postgres::{ADMIT_SQL, admit};
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::types::Type;

use super::{newest, stale, start, token};

/// Tokens in this order on one resource, with the number of rows that each one changes.
const ANSWERS: [(i64, u64); 5] = [(5, 1), (5, 1), (8, 1), (7, 0), (8, 1)];

#[tokio::test]
async fn prepared_by_name_in_plain_sql() {
    let (_server, client) = start().await;
    let prepare = format!("PREPARE admit (text, bigint) AS {ADMIT_SQL}");
    client.batch_execute(&prepare).await.unwrap();
    for (number, expected) in ANSWERS {
        let execute = format!("EXECUTE admit('a', {number})");
        let answer = client.simple_query(&execute).await.unwrap();
        let [SimpleQueryMessage::CommandComplete(rows)] = answer[..] else {
            panic!("{answer:?}");
        };
        assert_eq!(rows, expected, "{number}");
    }
    assert_eq!(newest(&client, "a").await, Some(8));
}

#[tokio::test]
async fn prepared_by_a_driver_that_asks_for_the_types() {
    let (_server, client) = start().await;
    let statement = client.prepare(ADMIT_SQL).await.unwrap();
    assert_eq!(statement.params(), [Type::TEXT, Type::INT8]);
    assert_eq!(statement.columns().len(), 0);
    for (number, expected) in ANSWERS {
        let rows = client.execute(&statement, &[&"a", &number]).await.unwrap();
        assert_eq!(rows, expected, "{number}");
    }
}

/// A pooler may use another connection for each transaction, which would not have what `admit` left in the first one.
#[tokio::test]
async fn admit_leaves_nothing_in_the_connection() {
    let (_server, mut client) = start().await;
    for number in [8, 7] {
        let transaction = client.transaction().await.unwrap();
        let answer = admit(&transaction, "a", token(number)).await;
        match number {
            8 => answer.unwrap(),
            _ => drop(stale(answer)),
        }
        let sql = "SELECT count(*) FROM pg_prepared_statements";
        let left = transaction.query_typed(sql, &[]).await.unwrap();
        assert_eq!(left[0].get::<_, i64>(0), 0);
        if number == 8 {
            transaction.commit().await.unwrap();
        }
    }
    client.batch_execute("DISCARD ALL").await.unwrap();
    stale(super::admit_alone(&mut client, "a", 7).await);
}

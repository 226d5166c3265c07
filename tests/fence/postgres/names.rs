//! Resources with any name, tokens of any size, and tables that differ a little from the expected one.

use tokio_postgres::error::SqlState;

use super::{admit_alone, connect, database_error, newest, stale, start, token};

#[tokio::test]
async fn a_resource_may_be_called_anything_but_nul() {
    let (_server, mut client) = start().await;
    let long = "x".repeat(2_600);
    let names = [
        "",
        " ",
        "'; DROP TABLE quorate_fence; --",
        "$1",
        "%",
        "A",
        "a",
        "e\u{301}",
        "\u{e9}",
        "\u{1f512}",
        "\u{feff}",
        "a\n",
        long.as_str(),
    ];
    for (number, name) in (1..).zip(names) {
        admit_alone(&mut client, name, number).await.unwrap();
    }
    for (number, name) in (1..).zip(names) {
        assert_eq!(newest(&client, name).await, Some(number), "{name:?}");
    }
    for (number, name) in (1..).zip(names) {
        assert_eq!(
            stale(admit_alone(&mut client, name, number - 1).await).resource,
            name
        );
    }
    let error = admit_alone(&mut client, "a\0b", 99).await;
    assert_eq!(database_error(error), SqlState::CHARACTER_NOT_IN_REPERTOIRE);
}

/// The name is an index entry, which has room for about 2,700 bytes after compression. A longer name is refused as a
/// whole, so names never collide by truncation.
#[tokio::test]
async fn a_name_that_is_too_long_is_an_error() {
    let (_server, mut client) = start().await;
    let mut seed = 1_u64;
    let random: String = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from_u32(0x4e00 + u32::try_from(seed >> 51).unwrap()).unwrap()
    })
    .take(350_000)
    .collect();
    assert!(random.len() >= 1_000_000);
    let short = random.chars().take(860).collect::<String>();
    admit_alone(&mut client, &short, 5).await.unwrap();
    for name in [random.as_str(), &random[..3_000]] {
        let error = admit_alone(&mut client, name, 5).await;
        assert_eq!(database_error(error), SqlState::PROGRAM_LIMIT_EXCEEDED);
    }
}

#[tokio::test]
async fn the_smallest_and_the_greatest_token_pass() {
    const GREATEST: u64 = (1 << 53) - 1;
    let (_server, mut client) = start().await;
    for number in [0, 0, 1, GREATEST, GREATEST] {
        admit_alone(&mut client, "a", number).await.unwrap();
    }
    assert_eq!(newest(&client, "a").await, i64::try_from(GREATEST).ok());
    for number in [0, GREATEST - 1] {
        assert_eq!(
            stale(admit_alone(&mut client, "a", number).await).newest,
            token(GREATEST)
        );
    }
}

#[tokio::test]
async fn a_table_without_checks_may_hold_any_number() {
    let (_server, mut client) = start().await;
    let table = "DROP TABLE quorate_fence;
        CREATE TABLE quorate_fence (resource text PRIMARY KEY, token bigint NOT NULL);
        INSERT INTO quorate_fence VALUES ('negative', -5), ('huge', 9223372036854775807)";
    client.batch_execute(table).await.unwrap();
    admit_alone(&mut client, "negative", 0).await.unwrap();
    // quorate never gives out this token, so the error names the greatest token that it does.
    let stale = stale(admit_alone(&mut client, "huge", 5).await);
    assert_eq!(
        (stale.token, stale.newest),
        (token(5), token((1 << 53) - 1))
    );
}

/// A client that finds another table has another fence.
#[tokio::test]
async fn the_search_path_finds_the_table() {
    let (server, mut client) = start().await;
    let schema = format!(
        "CREATE SCHEMA app; SET search_path = app, public; {}",
        super::SCHEMA
    );
    client.batch_execute(&schema).await.unwrap();
    admit_alone(&mut client, "a", 8).await.unwrap();
    assert_eq!(newest(&client, "a").await, Some(8));

    let mut other = connect(&server).await;
    assert_eq!(newest(&other, "a").await, None);
    admit_alone(&mut other, "a", 7).await.unwrap();

    other
        .batch_execute("SET search_path = nowhere")
        .await
        .unwrap();
    let error = admit_alone(&mut other, "a", 9).await;
    assert_eq!(database_error(error), SqlState::UNDEFINED_TABLE);
}

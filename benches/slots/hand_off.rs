//! The time until a waiter takes a freed slot.

use std::time::Duration;

use crate::{
    connect, round_trip,
    show::{reaches, within},
    work::{Load, run},
};

const WAITERS: usize = 50;

pub async fn hand_off(urls: &[String]) {
    let rtt = round_trip(urls).await;
    println!("\n{WAITERS} clients, 200 ms held on average (exponential), RTT {rtt:.1?}");
    println!(
        "  L | hand-off p50, p99, mean in RTT | occupancy | longest wait × L / (clients × cycle)"
    );
    for limit in [1, 3, 10] {
        let mut clients = Vec::new();
        for _ in 0..WAITERS {
            clients.push(connect(urls).await);
        }
        let load = Load {
            limit,
            hold: Duration::from_millis(200),
            rest: Duration::ZERO,
            warm: Duration::from_secs(2),
            run: Duration::from_secs(15),
        };
        let done = run(clients, &format!("bench:hand-off:{limit}"), load, || {}).await;
        let took = done.hand_offs();
        let in_rtt = |time: Duration| time.as_secs_f64() / rtt.as_secs_f64();
        let (p50, p99) = (
            in_rtt(took[took.len() / 2]),
            in_rtt(took[took.len() * 99 / 100]),
        );
        let mean = in_rtt(took.iter().sum::<Duration>() / took.len() as u32);
        let occupancy = done.occupancy(limit);
        let longest = done
            .permits
            .iter()
            .map(|p| p.begun - p.asked)
            .max()
            .unwrap();
        let cycle = done.took.as_secs_f64() / done.permits.len() as f64;
        let longest = longest.as_secs_f64() / (WAITERS as f64 * cycle);
        let (p50, occupancy) = match limit {
            3 => (
                within(&format!("{p50:.2}"), p50, 2.4),
                reaches(&format!("{occupancy:.3}"), occupancy, 0.88),
            ),
            _ => (format!("{p50:.2}"), format!("{occupancy:.3}")),
        };
        println!("{limit:3} | {p50}, {p99:.2}, {mean:.2} | {occupancy} | {longest:.2}");
    }
}

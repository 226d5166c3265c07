//! The most that the `redis` crate can do without any safety. It sends SET NX PX to all nodes at once with TCP_NODELAY,
//! and returns at the majority. It releases by compare-and-delete, and waits for a majority. It does not use the
//! crate's response timeout, which makes a timer for every command.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::{Duration, Instant},
};

use redis::{
    AsyncConnectionConfig, Cmd, ConnectionInfo, IntoConnectionInfo, RedisResult, Value,
    aio::MultiplexedConnection,
};

use crate::{
    MAJORITY, NODES, TTL,
    load::{Contestant, Given},
};

const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

#[derive(Clone)]
pub struct Floor {
    nodes: [MultiplexedConnection; NODES],
    release: String,
}

impl Floor {
    pub async fn connect(urls: &[String]) -> Self {
        let mut nodes = Vec::new();
        let mut release = String::new();
        for url in urls {
            let info: ConnectionInfo = url.as_str().into_connection_info().unwrap();
            let tcp = info.tcp_settings().clone().set_nodelay(true);
            let client = redis::Client::open(info.set_tcp_settings(tcp)).unwrap();
            let config = AsyncConnectionConfig::new().set_response_timeout(None);
            let node = client.get_multiplexed_async_connection_with_config(&config);
            let mut node = node.await.unwrap();
            let load = redis::cmd("SCRIPT").arg("LOAD").arg(RELEASE).clone();
            release = load.query_async(&mut node).await.unwrap();
            nodes.push(node);
        }
        let Ok(nodes) = nodes.try_into() else {
            panic!("{} servers", urls.len());
        };
        Self { nodes, release }
    }

    /// Waits until a majority has given the wanted answer.
    async fn majority(&mut self, command: &Cmd, wanted: Value) {
        let [a, b, c, d, e] = &mut self.nodes;
        // The futures are on the stack, because a FuturesUnordered costs more.
        let mut asked = [
            pin!(ask(a, command)),
            pin!(ask(b, command)),
            pin!(ask(c, command)),
            pin!(ask(d, command)),
            pin!(ask(e, command)),
        ];
        let mut over = [false; NODES];
        let mut granted = 0;
        poll_fn(|cx| {
            for (node, over) in asked.iter_mut().zip(&mut over) {
                if !*over && let Poll::Ready(answer) = node.as_mut().poll(cx) {
                    *over = true;
                    granted += usize::from(answer.unwrap() == wanted);
                }
            }
            assert!(granted >= MAJORITY || over != [true; NODES], "refused");
            match granted {
                MAJORITY.. => Poll::Ready(()),
                _ => Poll::Pending,
            }
        })
        .await;
    }
}

async fn ask(node: &mut MultiplexedConnection, command: &Cmd) -> RedisResult<Value> {
    node.send_packed_command(command).await
}

impl Contestant for Floor {
    async fn pair(&mut self, Given { name, owner }: Given) -> Duration {
        let start = Instant::now();
        let mut set = redis::cmd("SET");
        set.arg(&name).arg(&owner).arg("NX");
        set.arg("PX").arg(TTL.as_millis() as u64);
        self.majority(&set, Value::Okay).await;
        let took = start.elapsed();
        let mut release = redis::cmd("EVALSHA");
        release.arg(&self.release).arg(1).arg(&name).arg(&owner);
        self.majority(&release, Value::Int(1)).await;
        took
    }
}

//! A TCP port on 127.0.0.1 that is ours even while nothing listens on it.
//!
//! A server that is down for a moment must come back on the same port, and test processes run side
//! by side: without a claim another test could take the port of a killed server, and answer in its
//! name.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// A claimed port; free for others when it is dropped, or when this process ends in whatever way.
pub struct Port {
    number: u16,
    // An abstract socket named after the port. The kernel lets one process have it, and gives it
    // back by itself: no lock file that a killed test could leave behind.
    _claim: UnixListener,
}

impl Port {
    /// Claims a port on which nothing listens right now.
    pub fn claim() -> Port {
        // Below the ports that the kernel hands out to outgoing connections (from 32768 on): one of
        // those could sit on ours while the server is down.
        const FIRST: u16 = 20_000;
        const COUNT: u64 = 10_000;

        for _ in 0..1_000 {
            let random = RandomState::new().build_hasher().finish();
            let number = FIRST + (random % COUNT) as u16;
            let name =
                SocketAddr::from_abstract_name(format!("quorate-test-port-{number}")).unwrap();
            let Ok(claim) = UnixListener::bind_addr(&name) else {
                continue; // another test's
            };
            if TcpListener::bind(("127.0.0.1", number)).is_ok() {
                return Port {
                    number,
                    _claim: claim,
                };
            }
        }
        panic!("no free port between {FIRST} and {FIRST} + {COUNT} on 127.0.0.1");
    }

    pub fn number(&self) -> u16 {
        self.number
    }
}

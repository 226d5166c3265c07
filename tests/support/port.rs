//! A TCP port on 127.0.0.1 that belongs to this test even while nothing listens on it.
//!
//! A server that is down for a moment must come back on the same port, and test processes run side by side. Without a
//! claim another test could take the port of a killed server, and answer in its name.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// A claimed port. It is free for others when this is dropped, or when this process ends in any way.
pub struct Port {
    number: u16,
    // An abstract socket with a name made from the port. The kernel lets only one process have it, and releases it by
    // itself. So a killed test leaves no lock file behind.
    _claim: UnixListener,
}

impl Port {
    /// Claims a port on which nothing listens right now.
    pub fn claim() -> Port {
        // This is below the ports that the kernel uses for outgoing connections (from 32768 on). One of those could
        // take our port while the server is down.
        const FIRST: u16 = 20_000;
        const COUNT: u64 = 10_000;

        for _ in 0..1_000 {
            let random = RandomState::new().build_hasher().finish();
            let number = FIRST + (random % COUNT) as u16;
            let name =
                SocketAddr::from_abstract_name(format!("quorate-test-port-{number}")).unwrap();
            let Ok(claim) = UnixListener::bind_addr(&name) else {
                continue; // another test has claimed it
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

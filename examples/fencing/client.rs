//! A client: it locks, reads, writes and releases. It passes its token to the store and checks nothing itself.

use std::error::Error;

use quorate::{Lease, Quorum, Renewal};
use tokio::runtime::{Builder, Runtime};

use crate::{Masters, TTL, store::Store};

pub(crate) struct Client {
    quorum: Quorum,
    runtime: Runtime,
}

impl Client {
    pub(crate) fn connect(masters: &Masters) -> Result<Self, Box<dyn Error>> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let builder = match masters {
            Masters::InProcess(nodes) => Quorum::builder().nodes(nodes),
            Masters::Servers(urls) => Quorum::builder().nodes(urls.clone()),
        };
        let quorum = runtime.block_on(builder.connect())?;
        Ok(Self { quorum, runtime })
    }

    /// Waits until the lock is granted. Renewal is off, so that the lease ends during the pause. A client whose process
    /// is paused could not renew either.
    pub(crate) fn lock(&mut self) -> Result<Lease, quorate::Error> {
        let mutex = self
            .quorum
            .mutex("account:42")
            .ttl(TTL)
            .renewal(Renewal::off());
        self.runtime.block_on(mutex.lock())
    }

    pub(crate) fn read(&mut self, store: &Store, lease: &Lease) -> Result<i64, Box<dyn Error>> {
        self.runtime.block_on(store.read(lease.token()))
    }

    pub(crate) fn write(
        &mut self,
        store: &Store,
        lease: &Lease,
        balance: i64,
    ) -> Result<(), Box<dyn Error>> {
        self.runtime.block_on(store.write(balance, lease.token()))
    }

    /// Every program should end like this: wait until all releases are confirmed.
    pub(crate) fn end(self, lease: Lease) {
        self.runtime.block_on(async {
            // An error here means that the lease was already over.
            let _ = lease.release().await;
            self.quorum.shutdown().await
        });
    }
}

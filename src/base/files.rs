//! Reads small files, such as passwords and certificates, on threads for blocking work.

#[cfg(feature = "tls-rustls")]
use std::io::Read as _;
use std::{fs::File, io, path::Path, sync::Arc};

use tokio::{
    sync::Mutex,
    task::{JoinError, spawn_blocking},
};

/// Opens a regular file. Opening a FIFO would block the thread until somebody writes to it.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    match path.metadata()?.is_file() {
        true => File::open(path),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// Reads a regular file.
#[cfg(feature = "tls-rustls")]
pub(crate) fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Lets one reader at a time read. A read from a mount that hangs cannot be stopped, so it keeps its thread; the next
/// readers wait without one.
#[derive(Clone, Debug, Default)]
pub(crate) struct OneReader(Arc<Mutex<()>>);

impl OneReader {
    /// Runs `read` on a thread for blocking work, when it is its turn. The caller limits the time.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let turn = Arc::clone(&self.0).lock_owned().await;
        let read = move || {
            let read = read();
            drop(turn);
            read
        };
        spawn_blocking(read).await
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            atomic::{AtomicUsize, Ordering::SeqCst},
            mpsc,
        },
        time::Duration,
    };

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_read_that_hangs_takes_one_thread_however_often_it_is_asked_for() {
        let reader = OneReader::default();
        let begun = Arc::new(AtomicUsize::new(0));
        let (go_on, hangs) = mpsc::channel::<()>();
        let first = {
            let (reader, begun) = (reader.clone(), Arc::clone(&begun));
            let read = move || {
                begun.fetch_add(1, SeqCst);
                hangs.recv()
            };
            tokio::spawn(async move { reader.run(read).await })
        };
        while begun.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        // Nobody waits for the first one any more, and its thread still hangs.
        first.abort();
        for _ in 0..20 {
            let begun = Arc::clone(&begun);
            let read = reader.run(move || begun.fetch_add(1, SeqCst));
            assert!(timeout(Duration::from_millis(1), read).await.is_err());
        }
        assert_eq!(begun.load(SeqCst), 1);
        go_on.send(()).unwrap();
        assert_eq!(reader.run(|| 7).await.unwrap(), 7, "it has come back");
    }
}

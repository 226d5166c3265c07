//! Places in async code, and places where tokio lets a thread wait.

use std::{future::Future, pin::Pin};

use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::{LocalSet, block_in_place, spawn_blocking, spawn_local, yield_now},
};

use super::*;

pub(super) fn multi_thread() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

pub(super) fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;
/// A place where a task may run. It runs the task to its end.
type Place = (&'static str, fn(Task));

/// The places in async code.
pub(super) const ASYNC: [Place; 9] = [
    ("tokio::main", |task| {
        #[tokio::main]
        async fn place(task: Task) {
            task.await;
        }
        place(task);
    }),
    ("tokio::main of one thread", |task| {
        #[tokio::main(flavor = "current_thread")]
        async fn place(task: Task) {
            task.await;
        }
        place(task);
    }),
    ("a task among threads", |task| {
        multi_thread().block_on(async { tokio::spawn(task).await.unwrap() });
    }),
    ("a task of one thread", |task| {
        current_thread().block_on(async { tokio::spawn(task).await.unwrap() });
    }),
    ("a LocalSet", |task| {
        let local = LocalSet::new();
        let task = local.run_until(async { spawn_local(task).await.unwrap() });
        current_thread().block_on(task);
    }),
    ("select", |task| {
        multi_thread().block_on(async {
            tokio::select! {
                () = task => {}
                () = std::future::pending() => {}
            }
        });
    }),
    ("join", |task| {
        current_thread().block_on(async {
            tokio::join!(yield_now(), task, yield_now());
        });
    }),
    ("block_on in spawn_blocking", |task| {
        multi_thread().block_on(async {
            let handle = Handle::current();
            let blocks = spawn_blocking(move || handle.block_on(task));
            blocks.await.unwrap();
        });
    }),
    ("block_on in block_in_place", |task| {
        multi_thread().block_on(async {
            block_in_place(|| Handle::current().block_on(task));
        });
    }),
];

/// A closure that may block.
type Act = Box<dyn FnOnce() + Send>;

/// A place where it may block.
type Thread = (&'static str, fn(Act));

/// The places where tokio lets a thread wait.
pub(super) const BLOCKING: [Thread; 9] = [
    ("spawn_blocking", |act| {
        multi_thread().block_on(async { spawn_blocking(act).await.unwrap() });
    }),
    ("spawn_blocking of one thread", |act| {
        current_thread().block_on(async { spawn_blocking(act).await.unwrap() });
    }),
    ("block_in_place of the main task", |act| {
        multi_thread().block_on(async { block_in_place(act) });
    }),
    ("block_in_place of a task", |act| {
        let place = async { tokio::spawn(async move { block_in_place(act) }).await };
        multi_thread().block_on(place).unwrap();
    }),
    ("behind Runtime::enter", |act| {
        let runtime = multi_thread();
        let _entered = runtime.enter();
        act();
    }),
    ("behind enter of one thread", |act| {
        let runtime = current_thread();
        let _entered = runtime.enter();
        act();
    }),
    ("a thread that a task started", |act| {
        multi_thread().block_on(async {
            let (tell, told) = tokio::sync::oneshot::channel();
            thread::spawn(move || {
                act();
                tell.send(()).unwrap();
            });
            told.await.unwrap();
        });
    }),
    ("a scoped thread of a task", |act| {
        current_thread().block_on(async {
            thread::scope(|scope| scope.spawn(act).join().unwrap());
        });
    }),
    ("within futures::executor", |act| {
        futures::executor::block_on(async { act() });
    }),
];

//! CPU time of this process and of servers, and the number of memory allocations.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    fs,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicU64 = AtomicU64::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// A buffer that grows counts as well.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        LIVE.fetch_add(layout.size() as u64, Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        LIVE.fetch_add(layout.size() as u64, Relaxed);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, bytes: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        LIVE.fetch_add(size as u64, Relaxed);
        LIVE.fetch_sub(layout.size() as u64, Relaxed);
        unsafe { System.realloc(bytes, layout, size) }
    }

    unsafe fn dealloc(&self, bytes: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as u64, Relaxed);
        unsafe { System.dealloc(bytes, layout) }
    }
}

/// Bytes that are allocated now.
#[allow(dead_code)]
pub fn live_bytes() -> u64 {
    LIVE.load(Relaxed)
}

/// The cost so far, or between two measurements.
pub struct Cost {
    pub client: Duration,
    pub servers: Duration,
    pub allocations: u64,
}

impl Cost {
    pub fn now(servers: &[u32]) -> Self {
        let client = clock_gettime(ClockId::ProcessCPUTime);
        Self {
            client: Duration::new(client.tv_sec as u64, client.tv_nsec as u32),
            servers: servers.iter().map(|pid| cpu_time(*pid)).sum(),
            allocations: ALLOCATIONS.load(Relaxed),
        }
    }

    pub fn since(&self, before: &Self) -> Self {
        Self {
            client: self.client - before.client,
            servers: self.servers - before.servers,
            allocations: self.allocations - before.allocations,
        }
    }
}

/// The CPU time of all threads of a process. `/proc/PID/stat` counts in steps of 10 ms, which is too coarse.
fn cpu_time(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let nanos = threads.map(|thread| {
        let path = thread.unwrap().path().join("schedstat");
        let times = fs::read_to_string(path).unwrap();
        let on_cpu: u64 = times.split(' ').next().unwrap().parse().unwrap();
        on_cpu
    });
    Duration::from_nanos(nanos.sum())
}

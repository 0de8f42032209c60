//! Threads that carry frames, and nothing else.
//!
//! A connection wakes several tasks one after the other. On one thread that costs nothing; from one thread of the
//! daemon to another it takes longer than all the rest of opening it. So all of one machine stays on one lane, and there
//! are few: a lane carries more than an emulated machine can send.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Processors for each lane, and the most lanes there are.
const PROCESSORS: usize = 4;
const MOST: usize = 4;

/// Dropped, the lanes end, and what was on them.
#[derive(Debug)]
pub(super) struct Lanes {
    all: Vec<Handle>,
    taken: AtomicUsize,
    _ending: DropGuard,
}

impl Lanes {
    pub(super) fn open() -> io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let ended = CancellationToken::new();
        let all = (0..(processors / PROCESSORS).clamp(1, MOST)).map(|_| lane(ended.clone()));
        let all = all.collect::<io::Result<_>>()?;
        Ok(Self { all, taken: AtomicUsize::new(0), _ending: ended.drop_guard() })
    }

    /// The lane for another machine: what it starts while it has entered this runtime stays there.
    pub(super) fn next(&self) -> &Handle {
        &self.all[self.taken.fetch_add(1, Ordering::Relaxed) % self.all.len()]
    }
}

fn lane(ended: CancellationToken) -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let run = move || runtime.block_on(ended.cancelled_owned());
    std::thread::Builder::new().name("network".to_owned()).spawn(run)?;
    Ok(handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_started_on_a_lane_stays_on_its_thread_and_ends_with_it() {
        let lanes = Lanes::open().unwrap();
        let (outer, inner) = {
            let _lane = lanes.next().enter();
            let name = || std::thread::current().name().map(str::to_owned);
            tokio::spawn(async move { (name(), tokio::spawn(async move { name() }).await.unwrap()) })
        }
        .await
        .unwrap();
        assert_eq!((outer.as_deref(), inner.as_deref()), (Some("network"), Some("network")));
        let waiting = lanes.next().spawn(std::future::pending::<()>());
        drop(lanes);
        assert!(waiting.await.unwrap_err().is_cancelled());
    }
}

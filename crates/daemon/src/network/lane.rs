//! The thread that carries the frames of one VM, or at the bridge its connections, and nothing else.
//!
//! A connection wakes several tasks one after the other. On one thread that costs nothing; between two threads of
//! the daemon it takes longer than all the rest of opening the connection. So everything of one VM stays on one
//! thread. No other VM shares it: a guest that floods the host keeps only its own thread busy, and the kernel
//! schedules the others fairly.

use std::io;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Dropping it ends the thread and the tasks on it.
#[derive(Debug)]
pub(super) struct Lane {
    runtime: Handle,
    _ending: DropGuard,
}

impl Lane {
    pub(super) fn open() -> io::Result<Self> {
        let ended = CancellationToken::new();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let ending = ended.clone().drop_guard();
        let run = move || runtime.block_on(ended.cancelled_owned());
        std::thread::Builder::new().name("network".to_owned()).spawn(run)?;
        Ok(Self { runtime: handle, _ending: ending })
    }

    /// Tasks that are started while this runtime is entered stay on the thread.
    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lane_keeps_its_tasks_on_one_thread() {
        let lane = Lane::open().unwrap();
        let (outer, inner) = {
            let _lane = lane.runtime().enter();
            let name = || std::thread::current().name().map(str::to_owned);
            tokio::spawn(async move { (name(), tokio::spawn(async move { name() }).await.unwrap()) })
        }
        .await
        .unwrap();
        assert_eq!((outer.as_deref(), inner.as_deref()), (Some("network"), Some("network")));
        let waiting = lane.runtime().spawn(std::future::pending::<()>());
        drop(lane);
        assert!(waiting.await.unwrap_err().is_cancelled());
    }

    #[tokio::test]
    async fn busy_lane_does_not_delay_another() {
        let (busy, other) = (Lane::open().unwrap(), Lane::open().unwrap());
        let (release, released) = std::sync::mpsc::channel::<()>();
        let working = busy.runtime().spawn(async move { released.recv() });
        other.runtime().spawn(async {}).await.unwrap();
        drop(release);
        assert!(working.await.unwrap().is_err());
    }
}

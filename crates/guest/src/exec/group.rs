//! The process group of a command. It is killed when its owner is dropped.

use std::io;

use rustix::process::{Signal, WaitIdStatus, kill_process_group};
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use crate::spawn::Child;
use crate::watch;

/// The background tasks that outlive a command: they reap killed processes and drain the pipes of detached ones.
#[derive(Clone, Debug, Default)]
pub struct BackgroundTasks {
    tasks: TaskTracker,
}

impl BackgroundTasks {
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        // Without a runtime the agent is ending, and init reaps the remaining processes.
        if let Ok(runtime) = Handle::try_current() {
            self.tasks.spawn_on(task, &runtime);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.tasks.len()
    }
}

/// A process group, by its leader. Dropping it kills the group, unless [`Group::finish`] is called.
///
/// The leader is reaped last: until then no other process can get its process id, which names the group.
#[derive(Debug)]
pub(crate) struct Group {
    /// Absent once it is reaped or passed to a background task.
    leader: Option<AsyncFd<Child>>,
    background: BackgroundTasks,
}

impl Group {
    pub(super) fn new(leader: Child, background: BackgroundTasks) -> io::Result<Self> {
        let pid = leader.pid();
        match watch::child(leader) {
            Ok(leader) => Ok(Self { leader: Some(leader), background }),
            Err(error) => {
                let _ = kill_process_group(pid, Signal::KILL);
                Err(error)
            }
        }
    }

    /// Resolves when the leader has ended.
    pub(crate) async fn ended(&self) {
        if let Some(leader) = &self.leader {
            // It fails only while the runtime shuts down, which ends the command anyway.
            drop(leader.readable().await);
        }
    }

    /// Kills every process of the group.
    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Sends a signal to every process of the group.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(leader) = &self.leader {
            // The group may have ended already.
            let _ = kill_process_group(leader.get_ref().pid(), signal);
        }
    }

    /// Reaps the leader if it has ended, and does not kill the rest of the group.
    pub(crate) fn finish(mut self) -> io::Result<Option<WaitIdStatus>> {
        let Some(leader) = &self.leader else { return Ok(None) };
        let status = leader.get_ref().try_wait()?;
        if status.is_some() {
            self.leader = None;
        }
        Ok(status)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        if let Some(leader) = self.leader.take() {
            self.background.spawn(async move {
                drop(leader.readable().await);
                drop(leader.get_ref().try_wait());
            });
        }
    }
}

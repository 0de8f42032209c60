//! A command's process group, which does not outlive the interest in it.

use std::io;

use rustix::process::{Signal, WaitIdStatus, kill_process_group};
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use crate::spawn::Child;
use crate::watch;

/// Owns the tasks that outlive a command: those that reap the killed and drain what the detached still print.
#[derive(Clone, Debug, Default)]
pub struct Graveyard {
    tasks: TaskTracker,
}

impl Graveyard {
    pub(super) fn bury(&self, task: impl Future<Output = ()> + Send + 'static) {
        // Without a runtime the process is ending and init reaps what is left.
        if let Ok(runtime) = Handle::try_current() {
            self.tasks.spawn_on(task, &runtime);
        }
    }

    pub(super) fn occupied(&self) -> usize {
        self.tasks.len()
    }
}

/// The leader of a group, and the promise to kill the group unless [`Group::finish`] is called.
///
/// The leader is reaped last of all: until then its process id, which names the group, cannot be given to another
/// process.
#[derive(Debug)]
pub(crate) struct Group {
    /// Absent once it is reaped or handed to the graveyard.
    leader: Option<AsyncFd<Child>>,
    graveyard: Graveyard,
}

impl Group {
    pub(super) fn new(leader: Child, graveyard: Graveyard) -> io::Result<Self> {
        let pid = leader.pid();
        match watch::child(leader) {
            Ok(leader) => Ok(Self { leader: Some(leader), graveyard }),
            Err(error) => {
                let _ = kill_process_group(pid, Signal::KILL);
                Err(error)
            }
        }
    }

    /// Resolves when the leader has ended.
    pub(crate) async fn ended(&self) {
        if let Some(leader) = &self.leader {
            // It fails only when the runtime is shutting down, which ends the command anyway.
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
            // The group may be gone already.
            let _ = kill_process_group(leader.get_ref().pid(), signal);
        }
    }

    /// Reaps the leader if it has ended and lets the rest of the group live.
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
            self.graveyard.bury(async move {
                drop(leader.readable().await);
                drop(leader.get_ref().try_wait());
            });
        }
    }
}

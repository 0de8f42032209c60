//! A group of tasks that start one by one and are ended together.
//!
//! [`TaskGroup::end`] cancels all of them and waits, but not longer than [`LONGEST`].

use std::time::Duration;

use futures::FutureExt;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Longest wait for the tasks to end. A cancelled task ends at its next await point, which comes soon; one that does
/// not reach it is abandoned.
const LONGEST: Duration = Duration::from_secs(5);

/// The tasks of one running VM, or of one connection of its network card. They also end with the token that the group
/// was created from.
#[derive(Clone, Debug)]
pub(crate) struct TaskGroup {
    cancelled: CancellationToken,
    tasks: TaskTracker,
}

impl TaskGroup {
    pub(crate) fn within(parent: &CancellationToken) -> Self {
        Self { cancelled: parent.child_token(), tasks: TaskTracker::new() }
    }

    /// Wraps a future so that it ends with the group, wherever it is. The caller spawns the result.
    pub(crate) fn wrap(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        self.tasks.track_future(self.cancelled.clone().run_until_cancelled_owned(work).map(drop))
    }

    /// Cancels the tasks without waiting for them.
    pub(crate) fn cancel(&self) {
        self.cancelled.cancel();
    }

    /// Cancels the tasks and waits until all of them have ended, for [`LONGEST`] at most.
    pub(crate) async fn end(self) {
        self.cancelled.cancel();
        self.tasks.close();
        if tokio::time::timeout(LONGEST, self.tasks.wait()).await.is_err() {
            tracing::error!(left = self.tasks.len(), "tasks of a VM that is gone do not end");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ending_a_task_group_ends_its_tasks() {
        let parent = CancellationToken::new();
        let (first, second) = (TaskGroup::within(&parent), TaskGroup::within(&parent));
        let held = std::sync::Arc::new(());
        for group in [&first, &second] {
            let held = held.clone();
            tokio::spawn(group.wrap(async move {
                std::future::pending::<()>().await;
                drop(held);
            }));
        }
        first.end().await;
        assert_eq!(std::sync::Arc::strong_count(&held), 2, "the other goes on");
        parent.cancel();
        second.end().await;
        assert_eq!(std::sync::Arc::strong_count(&held), 1);
    }
}

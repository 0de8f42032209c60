//! Tasks that begin one by one and end together.

use std::time::Duration;

use futures::FutureExt;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Tasks end where they next wait, which they do often; one that does not is not waited for.
const LONGEST: Duration = Duration::from_secs(5);

/// What one machine has going on, or one connection of its card. Ended with whoever it is a part of, or before.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    ended: CancellationToken,
    tasks: TaskTracker,
}

impl Life {
    pub(crate) fn within(whole: &CancellationToken) -> Self {
        Self { ended: whole.child_token(), tasks: TaskTracker::new() }
    }

    /// A task of this life, to be spawned: it ends, wherever it is, when the life does.
    pub(crate) fn part(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        self.tasks.track_future(self.ended.clone().run_until_cancelled_owned(work).map(drop))
    }

    /// Ends when this does, without waiting.
    pub(crate) fn cancel(&self) {
        self.ended.cancel();
    }

    /// Ends it. Returns when nothing of it is left.
    pub(crate) async fn end(self) {
        self.ended.cancel();
        self.tasks.close();
        if tokio::time::timeout(LONGEST, self.tasks.wait()).await.is_err() {
            tracing::error!(left = self.tasks.len(), "tasks of a machine that is gone do not end");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_belongs_to_a_life_is_gone_when_it_has_ended() {
        let whole = CancellationToken::new();
        let (first, second) = (Life::within(&whole), Life::within(&whole));
        let held = std::sync::Arc::new(());
        for life in [&first, &second] {
            let held = held.clone();
            tokio::spawn(life.part(async move {
                std::future::pending::<()>().await;
                drop(held);
            }));
        }
        first.end().await;
        assert_eq!(std::sync::Arc::strong_count(&held), 2, "the other goes on");
        whole.cancel();
        second.end().await;
        assert_eq!(std::sync::Arc::strong_count(&held), 1);
    }
}

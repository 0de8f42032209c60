//! Runs work that must clean up after itself even if its client gives up.

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Session;
use crate::error::OpError;

impl Session {
    /// Runs work in a task of the daemon. When the client gives up, or the daemon begins to shut down, the work's token
    /// is cancelled; the work then undoes what it must and ends.
    pub(super) async fn guarded<T, F>(
        &self,
        work: impl FnOnce(Session, CancellationToken) -> F,
    ) -> Result<T, OpError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, OpError>> + Send + 'static,
    {
        let stop = self.shared().closing.child_token();
        let _stopped_with_us = stop.clone().drop_guard();
        let (done, outcome) = oneshot::channel();
        let work = work(self.clone(), stop);
        self.shared().tasks.spawn(async move {
            // The receiver is gone if the client gave up.
            let _ = done.send(work.await);
        });
        outcome.await.unwrap_or(Err(OpError::ShuttingDown))
    }
}

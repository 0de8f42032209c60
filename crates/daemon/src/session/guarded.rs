//! Work that must be tidied up after, whatever becomes of the caller.

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Session;
use crate::error::OpError;

impl Session {
    /// Has work done by a task of the daemon's own. When the caller gives up, or the daemon begins to shut down, the
    /// token that the work was given is cancelled; it then undoes what it must and ends.
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
            // Who gave up does not want to know.
            let _ = done.send(work.await);
        });
        outcome.await.unwrap_or(Err(OpError::ShuttingDown))
    }
}

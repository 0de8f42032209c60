//! Runs work on files off the async threads.

use std::sync::Arc;

use crate::publish::Slot;

/// Runs `work` on a blocking thread. Such a thread cannot be cancelled, so it shares the ownership of the lock: if the
/// caller goes away, no other builder can use the same directory before the thread has ended.
pub(crate) async fn run<T, E>(
    slot: Arc<Slot>,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: Send + 'static,
{
    let task = tokio::task::spawn_blocking(move || {
        let result = work();
        drop(slot);
        result
    });
    match task.await {
        Ok(result) => result,
        // The runtime only drops blocking tasks when it is shut down, and then nothing polls this future. The only
        // remaining case is a panic, which is passed to the caller.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

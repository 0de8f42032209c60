//! Runs the async work of a command until it is done or interrupted.

use std::future::Future;

use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Failure, INTERRUPTED};

/// Runs `work` on a small runtime. ctrl-C and SIGTERM drop it, and dropping it undoes incomplete work.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    runtime()?.block_on(async {
        let mut terminated = signal(SignalKind::terminate()).map_err(signal_failure)?;
        let mut interrupted = signal(SignalKind::interrupt()).map_err(signal_failure)?;
        tokio::select! {
            // Signals come first, so that work that is always ready cannot delay them.
            biased;
            _ = interrupted.recv() => Err(Failure::new("interrupted").code(INTERRUPTED)),
            _ = terminated.recv() => Err(Failure::new("terminated").code(INTERRUPTED)),
            value = work => Ok(value),
        }
    })
}

/// A runtime for commands that handle signals themselves.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        // Commands wait more than they compute, so two threads are enough. The daemon has its own runtime.
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("cannot start the async runtime: {error}")))
}

pub(crate) fn signal_failure(error: std::io::Error) -> Failure {
    Failure::new(format!("cannot wait for signals: {error}"))
}

//! Running async work from a command, until it is done or the person has had enough.

use std::future::Future;

use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Failure, INTERRUPTED};

/// Runs `work` on a small runtime. ctrl-C and SIGTERM drop it, and dropping undoes what was half done.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    runtime()?.block_on(async {
        let mut terminated = signal(SignalKind::terminate()).map_err(no_signals)?;
        let mut interrupted = signal(SignalKind::interrupt()).map_err(no_signals)?;
        tokio::select! {
            // The signal comes first: a person who gives up must not be outrun by work that is always ready.
            biased;
            _ = interrupted.recv() => Err(Failure::new("interrupted").code(INTERRUPTED)),
            _ = terminated.recv() => Err(Failure::new("terminated").code(INTERRUPTED)),
            value = work => Ok(value),
        }
    })
}

/// A runtime for commands that deal with signals themselves.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        // Commands wait more than they compute; the daemon chooses for itself.
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("the runtime cannot start: {error}")))
}

pub(crate) fn no_signals(error: std::io::Error) -> Failure {
    Failure::new(format!("signals cannot be waited for: {error}"))
}

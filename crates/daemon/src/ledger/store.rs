//! Saving from many tasks: each waits until its own change is on disk, and one write serves all that are waiting.
//!
//! A change is made in memory first, then saved. When saving fails, whoever made the change undoes it (or keeps
//! it, where the world has already changed) and the store remembers that the file is behind, so that it is
//! written again later.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Mutex;

use super::file::{self, LedgerError};
use super::schema::LedgerDocument;

#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    /// The generation that is on disk. The lock is held while a write runs.
    saved: Arc<Mutex<u64>>,
    behind: Arc<AtomicBool>,
}

impl Store {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, saved: Arc::new(Mutex::new(0)), behind: Arc::new(AtomicBool::new(false)) }
    }

    /// Whether a save failed since the last one that succeeded.
    pub(crate) fn is_behind(&self) -> bool {
        self.behind.load(Ordering::Acquire)
    }

    /// Returns once `generation`, or a later one, is on disk. `take` gives the state and its generation; it is
    /// called when the write begins.
    pub(crate) async fn save(
        &self,
        generation: u64,
        take: impl FnOnce() -> (u64, LedgerDocument),
    ) -> Result<(), LedgerError> {
        let mut saved = Arc::clone(&self.saved).lock_owned().await;
        if *saved >= generation {
            return Ok(());
        }
        let (taken, document) = take();
        let path = self.path.clone();
        let behind = Arc::clone(&self.behind);
        // The guard goes with the write: a caller that is cancelled meanwhile must not let a second write begin
        // on the same temporary file.
        let write = tokio::task::spawn_blocking(move || {
            let result = file::write(&path, &document);
            behind.store(result.is_err(), Ordering::Release);
            if result.is_ok() {
                *saved = taken;
            }
            result
        });
        match write.await {
            Ok(result) => result,
            Err(error) => {
                let source = std::io::Error::other(error);
                Err(LedgerError::Io { path: self.path.clone(), source })
            }
        }
    }
}

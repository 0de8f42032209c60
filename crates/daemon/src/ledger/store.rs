//! Saving from many tasks: each waits until its own change is on disk, and one write serves all that are waiting.
//!
//! A change is made in memory first, then saved. When saving fails, whoever made the change undoes it (or keeps
//! it, where the world has already changed) and the store remembers that the file is behind, so that it is
//! written again later. The same holds for a caller that is cancelled before its write begins: its change is made.

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

    /// Whether a save failed, or was given up, since the last one that succeeded.
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
        let mut unsaved = BehindOnDrop { behind: Arc::clone(&self.behind), armed: true };
        let mut saved = Arc::clone(&self.saved).lock_owned().await;
        if *saved >= generation {
            unsaved.armed = false;
            return Ok(());
        }
        // Before the state is taken, and never after the write: a change that is given up meanwhile is in no file, and
        // one that was given up before is in this one.
        self.behind.store(false, Ordering::Release);
        let (taken, document) = take();
        let path = self.path.clone();
        // The lock goes with the write: a caller that is cancelled meanwhile must not let a second write begin on the
        // same temporary file. So does the mark, which is set however the write fails.
        let write = tokio::task::spawn_blocking(move || {
            let result = file::write(&path, &document);
            if result.is_ok() {
                unsaved.armed = false;
                *saved = taken;
            }
            // Before the lock, so that the next write does not begin with the mark of this one still to come.
            drop(unsaved);
            drop(saved);
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

/// Says that the file is behind, unless the change was found to be in it.
struct BehindOnDrop {
    behind: Arc<AtomicBool>,
    armed: bool,
}

impl Drop for BehindOnDrop {
    fn drop(&mut self) {
        if self.armed {
            self.behind.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use futures::FutureExt;

    use super::*;
    use crate::ledger::{Counters, SCHEMA_VERSION};

    fn document() -> LedgerDocument {
        LedgerDocument {
            schema_version: SCHEMA_VERSION,
            saved_at: jiff::Timestamp::UNIX_EPOCH,
            workspaces: BTreeMap::new(),
            sessions: Vec::new(),
            teams: agentiso_core::team::Teams::default(),
            counters: Counters::default(),
        }
    }

    #[tokio::test]
    async fn a_save_that_is_given_up_while_it_waits_is_made_good_later() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("state.json"));
        let writing = Arc::clone(&store.saved).lock_owned().await;
        let waiting = store.save(1, || panic!("it must not begin"));
        assert!(tokio::time::timeout(std::time::Duration::from_millis(10), waiting).await.is_err());
        assert!(store.is_behind());
        drop(writing);
        store.save(2, || (2, document())).await.unwrap();
        assert!(!store.is_behind());
    }
    #[tokio::test]
    async fn a_save_that_is_given_up_behind_a_write_is_not_forgotten_when_that_write_succeeds() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("state.json"));
        let first = || {
            let taken = (1, document());
            // Made after the state was taken, and given up while that is being written.
            assert!(store.save(2, || panic!("it must not begin")).now_or_never().is_none());
            taken
        };
        store.save(1, first).await.unwrap();
        assert!(store.is_behind());
        store.save(2, || (2, document())).await.unwrap();
        assert!(!store.is_behind());
    }

    #[tokio::test]
    async fn a_write_that_fails_leaves_the_file_behind() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("absent/state.json"));
        store.save(1, || (1, document())).await.unwrap_err();
        assert!(store.is_behind());
    }
}

//! The first command of a machine that has just come up.
//!
//! Under emulation it costs ten times what the next one costs: all that it runs is translated first. Ten machines that are
//! asked at once would get a fifth of a processor each, and all be late; so they take turns, as they do coming up.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

/// What a first command takes, and some more. One that takes longer has other things to do than to begin.
const LONGEST: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub(crate) struct FirstTurns {
    turns: Arc<Semaphore>,
    /// Machines that have run nothing yet.
    fresh: Mutex<HashSet<WorkspaceId>>,
}

/// A turn ends when it is dropped, and by itself after a while.
#[derive(Debug)]
pub(crate) struct Turn {
    _held: AbortOnDropHandle<()>,
}

impl FirstTurns {
    pub(crate) fn new(at_once: usize) -> Self {
        Self { turns: Arc::new(Semaphore::new(at_once)), fresh: Mutex::default() }
    }

    fn fresh(&self) -> MutexGuard<'_, HashSet<WorkspaceId>> {
        // Every change is one insert or remove.
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn came_up(&self, id: WorkspaceId) {
        self.fresh().insert(id);
    }

    pub(crate) fn forget(&self, id: &WorkspaceId) {
        self.fresh().remove(id);
    }

    /// Waits for the turn of a machine's first command; the others need none.
    pub(crate) async fn take(&self, id: &WorkspaceId) -> Option<Turn> {
        if !self.fresh().remove(id) {
            return None;
        }
        let permit = Arc::clone(&self.turns).acquire_owned().await.ok()?;
        let held = tokio::spawn(async move {
            tokio::time::sleep(LONGEST).await;
            drop(permit);
        });
        Some(Turn { _held: AbortOnDropHandle::new(held) })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn only_the_first_command_waits_and_no_longer_than_the_longest_turn() {
        let turns = FirstTurns::new(1);
        let [one, two, three] = [(); 3].map(|()| WorkspaceId::random());
        for id in [one, two, three] {
            turns.came_up(id);
        }
        let first = turns.take(&one).await;
        assert!(first.is_some());
        assert!(turns.take(&one).await.is_none(), "its second command waits for nothing");
        assert!(turns.take(&two).now_or_never().is_none(), "the turn is taken");
        drop(first);
        turns.came_up(two);
        let _second = turns.take(&two).await.expect("its turn");
        let began = tokio::time::Instant::now();
        assert!(turns.take(&three).await.is_some(), "a turn ends by itself");
        assert!(began.elapsed() > LONGEST / 2, "and not before its time");
        turns.came_up(one);
        turns.forget(&one);
        assert!(turns.take(&one).await.is_none());
    }
}

//! Turns for the first command of each VM that has just come up.
//!
//! Under emulation the first command costs ten times as much as the next one, because all the code it runs is
//! translated first. Ten VMs that run theirs at once would get a fifth of a processor each and all be late, so
//! first commands take turns, as boots do.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::task::AbortOnDropHandle;

/// A first command takes less than this. One that takes longer is doing real work and no longer needs the turn.
const MAX_TURN: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub(crate) struct FirstTurns {
    turns: Arc<Semaphore>,
    /// VMs that have run nothing yet.
    fresh: Mutex<HashSet<WorkspaceId>>,
}

/// A turn ends when it is dropped, and by itself after [`MAX_TURN`].
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

    /// Waits for a turn if this is the first command of the VM; later commands need none.
    pub(crate) async fn take(&self, id: &WorkspaceId) -> Option<Turn> {
        if !self.fresh().remove(id) {
            return None;
        }
        let permit = Arc::clone(&self.turns).acquire_owned().await.ok()?;
        let held = tokio::spawn(async move {
            tokio::time::sleep(MAX_TURN).await;
            drop(permit);
        });
        Some(Turn { _held: AbortOnDropHandle::new(held) })
    }
}

/// Runs the first commands of a VM within the turn in which it booted: if it had to share its processor with the
/// next VM, its code would be evicted from the caches. Commands that take longer than [`MAX_TURN`] do not delay
/// other boots.
pub(crate) async fn within<T>(turn: SemaphorePermit<'_>, commands: impl Future<Output = T>) -> T {
    let mut commands = pin!(commands);
    if let Ok(done) = tokio::time::timeout(MAX_TURN, &mut commands).await {
        return done;
    }
    drop(turn);
    commands.await
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn only_first_commands_wait_for_a_turn() {
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
        assert!(began.elapsed() > MAX_TURN / 2, "and not before its time");
        turns.came_up(one);
        turns.forget(&one);
        assert!(turns.take(&one).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn slow_commands_lose_the_turn_and_continue() {
        let turns = Semaphore::new(1);
        let (go_on, asked) = tokio::sync::oneshot::channel();
        let commands = within(turns.try_acquire().unwrap(), asked);
        let next = async {
            let began = tokio::time::Instant::now();
            let _next = turns.acquire().await.unwrap();
            go_on.send("done").unwrap();
            began.elapsed()
        };
        let (said, waited) = tokio::join!(commands, next);
        assert_eq!((said, waited), (Ok("done"), MAX_TURN));
        within(turns.try_acquire().unwrap(), async {}).await;
        assert_eq!(turns.available_permits(), 1, "commands that are done give it back at once");
    }
}

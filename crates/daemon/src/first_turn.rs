//! The first command of a machine that has just come up.
//!
//! Under emulation it costs ten times what the next one costs: all that it runs is translated first. Ten machines that are
//! asked at once would get a fifth of a processor each, and all be late; so they take turns, as they do coming up.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use tokio::sync::{Semaphore, SemaphorePermit};
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

/// Runs the first commands of a machine within the turn in which it came up: one that has to share its processor with the
/// next machine finds its code thrown out of the caches. Commands that take longer keep nobody from coming up.
pub(crate) async fn within<T>(turn: SemaphorePermit<'_>, commands: impl Future<Output = T>) -> T {
    let mut commands = pin!(commands);
    if let Ok(done) = tokio::time::timeout(LONGEST, &mut commands).await {
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

    #[tokio::test(start_paused = true)]
    async fn commands_keep_the_turn_for_a_while_and_go_on_without_it() {
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
        assert_eq!((said, waited), (Ok("done"), LONGEST));
        within(turns.try_acquire().unwrap(), async {}).await;
        assert_eq!(turns.available_permits(), 1, "commands that are done give it back at once");
    }
}

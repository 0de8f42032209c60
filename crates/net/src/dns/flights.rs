//! Shares one upstream question between all guests that wait for the same answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

use super::cache::{CachedOutcome, Key};

type Cell = Arc<OnceCell<CachedOutcome>>;

#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<HashMap<Key, Cell>>);

impl Flights {
    /// Waits for the answer to this question. The first waiter asks; if it is cancelled, the next one does. The futures
    /// of the others are never started.
    pub(super) async fn join(&self, key: &Key, ask: impl Future<Output = CachedOutcome>) -> CachedOutcome {
        let cell = {
            let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(flights.entry(key.clone()).or_default())
        };
        let waiting = Waiting { flights: self, key, cell };
        waiting.cell.get_or_init(|| ask).await.clone()
    }
}

/// Removes the question from the table when it is answered, or when the last waiter is gone.
struct Waiting<'a> {
    flights: &'a Flights,
    key: &'a Key,
    cell: Cell,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut flights = self.flights.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_ours = flights.get(self.key).is_some_and(|cell| Arc::ptr_eq(cell, &self.cell));
        // Two references: the table's own and this one. Nothing else waits.
        let is_last = Arc::strong_count(&self.cell) <= 2;
        if is_ours && (self.cell.initialized() || is_last) {
            flights.remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::cache::Outcome;
    use agentiso_core::network::DomainName;
    use hickory_proto::rr::RecordType;
    use std::time::Duration;
    use tokio::time::{Instant, sleep, timeout};

    fn key() -> Key {
        (DomainName::parse("example.com").unwrap(), RecordType::A)
    }

    async fn answer_after(delay: Duration) -> CachedOutcome {
        sleep(delay).await;
        CachedOutcome::new(Outcome::Failed("asked".to_owned()), Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn finished_questions_leave_the_flight_table() {
        let (flights, key, second) = (Flights::default(), key(), Duration::from_secs(1));
        flights.join(&key, answer_after(second)).await;
        assert!(flights.0.lock().unwrap().is_empty(), "answered");
        let given_up = timeout(second / 2, flights.join(&key, answer_after(second))).await;
        assert!(given_up.is_err() && flights.0.lock().unwrap().is_empty(), "given up by the only one");
        let first = timeout(second / 2, flights.join(&key, answer_after(second)));
        let (first, _) = tokio::join!(first, flights.join(&key, answer_after(second)));
        assert!(first.is_err() && flights.0.lock().unwrap().is_empty(), "given up by the first of two");
    }
}

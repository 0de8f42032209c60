//! One question upstream, however many guests wait for its answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

use super::cache::{Held, Key};

type Cell = Arc<OnceCell<Held>>;

#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<HashMap<Key, Cell>>);

impl Flights {
    /// Waits for the answer to this question. The first who waits asks; if they give up, the next one does.
    /// What the others would have asked is never begun.
    pub(super) async fn join(&self, key: &Key, ask: impl Future<Output = Held>) -> Held {
        let cell = {
            let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(flights.entry(key.clone()).or_default())
        };
        let waiting = Waiting { flights: self, key, cell };
        waiting.cell.get_or_init(|| ask).await.clone()
    }
}

/// Takes the question off the table when it is answered, or when the last who waited has gone.
struct Waiting<'a> {
    flights: &'a Flights,
    key: &'a Key,
    cell: Cell,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut flights = self.flights.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_ours = flights.get(self.key).is_some_and(|cell| Arc::ptr_eq(cell, &self.cell));
        // The table's own and this one: nobody else waits.
        let is_last = Arc::strong_count(&self.cell) <= 2;
        if is_ours && (self.cell.initialized() || is_last) {
            flights.remove(self.key);
        }
    }
}

//! A limit on complaints in one VM's log, so that a guest cannot evict other records with them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Complaints per second.
const MOST: u32 = 50;

#[derive(Debug)]
pub(crate) struct Complaints(Mutex<Second>);

#[derive(Debug)]
struct Second {
    since: Instant,
    made: u32,
}

impl Complaints {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Second { since: Instant::now(), made: 0 }))
    }

    /// Whether one more complaint fits into this second. It is counted.
    pub(crate) fn admit(&self) -> bool {
        let mut second = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if second.since.elapsed() >= Duration::from_secs(1) {
            *second = Second { since: Instant::now(), made: 0 };
        }
        second.made = second.made.saturating_add(1);
        second.made <= MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn complaints_are_limited_per_second() {
        let complaints = Complaints::new();
        for _ in 0..3 {
            assert_eq!((0..1000).filter(|_| complaints.admit()).count(), MOST as usize);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }
}

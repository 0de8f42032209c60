//! How many complaints of one machine reach its log: a guest must not wash away with them what else happened.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// In each second.
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

    /// Whether there is room for one more, which is taken.
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
    async fn every_second_has_room_for_so_many() {
        let complaints = Complaints::new();
        for _ in 0..3 {
            assert_eq!((0..1000).filter(|_| complaints.admit()).count(), MOST as usize);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }
}

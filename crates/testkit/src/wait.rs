//! Waiting with a deadline for conditions that give a test no event.

use std::time::{Duration, Instant};

/// Long enough for any single step on a busy host under software emulation.
pub const LONG: Duration = Duration::from_secs(180);

/// The interval between two checks of a condition.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Returns once `condition` holds; panics with `what` after `limit`.
pub fn eventually(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within {limit:?}");
        pause(LOOK_EVERY);
    }
}

#[expect(clippy::disallowed_methods, reason = "a test polls for conditions that give no event")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

//! Waiting for what has no event a test could listen to, with a deadline.

use std::time::{Duration, Instant};

/// Long enough for any single step on a busy machine under software emulation.
pub const LONG: Duration = Duration::from_secs(180);

/// How often a condition without an event is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Returns once `condition` holds; panics with `what` after `limit`.
pub fn eventually(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within {limit:?}");
        pause(LOOK_EVERY);
    }
}

#[expect(clippy::disallowed_methods, reason = "a test looks from outside at what gives no event")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

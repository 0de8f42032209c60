//! How many files the daemon may have open at once.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Where there is no limit: more than anybody will ever need.
const PLENTY: usize = 1 << 20;

/// Raises the limit to what the system lets us have, and says how many that are. The usual limit is for programs that
/// `select`, and one busy workspace would reach it.
pub(crate) fn raise() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    let most = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::warn!(%error, "the limit of open files cannot be raised");
            current
        }
    };
    most.and_then(|most| usize::try_from(most).ok()).unwrap_or(PLENTY)
}

//! Raises the limit on files that the daemon may have open at once.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Stands for no limit: more than will ever be needed.
const PLENTY: usize = 1 << 20;

/// Raises the limit as far as the system allows and returns it. The usual limit is meant for programs that
/// `select`, and one busy workspace would reach it.
pub(crate) fn raise() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    let most = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::warn!(%error, "cannot raise the limit of open files");
            current
        }
    };
    most.and_then(|most| usize::try_from(most).ok()).unwrap_or(PLENTY)
}

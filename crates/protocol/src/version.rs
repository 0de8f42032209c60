//! Protocol generations, and the choice of one by both sides.
//!
//! An agent that is frozen in a memory snapshot cannot be upgraded. So a host supports every generation from
//! [`OLDEST`] on, and the agent always answers with the lower of both sides' highest generations.

/// Highest generation this code speaks.
pub const CURRENT: u32 = 1;

/// Oldest generation this code still speaks.
pub const OLDEST: u32 = 1;

/// Features of an agent built from this code; a host asks for a feature instead of comparing versions.
pub const FEATURES: &[&str] = &[
    "clock.catch_up",
    "env.set",
    "exec.stream",
    "exec.tail",
    "files.edit",
    LIST_TREES,
    "files.tree",
    "jobs",
    LOCAL_LISTEN,
    "root.attach",
    "root.grow",
    "shutdown",
];

/// Recursive listings. An agent without this feature lists one directory and ignores depth and pattern.
pub const LIST_TREES: &str = "files.list_trees";

/// A local port. An agent without this feature opens no port for programs in its guest.
pub const LOCAL_LISTEN: &str = "local.listen";

/// The generation to use with a peer whose highest is `theirs`; `None` if there is no common one.
pub fn settle(theirs: u32) -> Option<u32> {
    let common = theirs.min(CURRENT);
    (common >= OLDEST).then_some(common)
}

#[cfg(test)]
mod tests {
    use super::{CURRENT, OLDEST, settle};

    #[test]
    fn newer_peer_settles_on_our_generation() {
        assert_eq!(settle(CURRENT + 7), Some(CURRENT));
    }

    #[test]
    fn peer_below_oldest_generation_is_refused() {
        assert_eq!(settle(OLDEST - 1), None);
    }
}

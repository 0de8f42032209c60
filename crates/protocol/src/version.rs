//! Which protocol generations exist and how two sides settle on one.
//!
//! An agent frozen in a memory snapshot cannot be upgraded, so a host supports every generation from
//! [`OLDEST`] on, and the agent always answers with the lower of both sides' highest.

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

/// An agent without it lists one directory, whatever depth and pattern it is asked for.
pub const LIST_TREES: &str = "files.list_trees";

/// An agent without it opens no port for programs in its machine.
pub const LOCAL_LISTEN: &str = "local.listen";

/// The generation to be spoken with a peer whose highest is `theirs`, if there is one.
pub fn settle(theirs: u32) -> Option<u32> {
    let common = theirs.min(CURRENT);
    (common >= OLDEST).then_some(common)
}

#[cfg(test)]
mod tests {
    use super::{CURRENT, OLDEST, settle};

    #[test]
    fn a_newer_peer_is_spoken_to_in_our_generation() {
        assert_eq!(settle(CURRENT + 7), Some(CURRENT));
    }

    #[test]
    fn a_peer_older_than_the_oldest_is_refused() {
        assert_eq!(settle(OLDEST - 1), None);
    }
}

//! What the git tools share.

use agentiso_core::paths::GuestPath;

use crate::args::GuestFile;

/// Where repositories are unless a call says otherwise.
const DEFAULT_REPO: &str = "/workspace";

/// A commit message that goes through a command line, quoted.
pub(super) const MAX_MESSAGE: usize = 16 * 1024;

pub(super) const REPO: GuestFile = GuestFile { name: "path", about: "The repository. Default: /workspace." };

pub(super) fn repo(path: Option<GuestPath>) -> Option<GuestPath> {
    path.or_else(|| GuestPath::parse(DEFAULT_REPO).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_default() {
        assert_eq!(repo(None).map(|path| path.to_string()).as_deref(), Some(DEFAULT_REPO));
    }
}

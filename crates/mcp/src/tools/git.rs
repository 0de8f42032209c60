//! Parameters and defaults that the git tools share.

use agentiso_core::paths::GuestPath;

use crate::args::GuestFile;

/// The repository, unless a call names another path.
const DEFAULT_REPO: &str = "/workspace";

/// Bytes of a commit message, which is passed on a command line, quoted.
pub(super) const MAX_MESSAGE: usize = 16 * 1024;

pub(super) const REPO: GuestFile = GuestFile::new("path", "Repository path. Default: /workspace.");

pub(super) fn repo(path: Option<GuestPath>) -> Option<GuestPath> {
    path.or_else(|| GuestPath::parse(DEFAULT_REPO).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repository_path_defaults_to_workspace() {
        assert_eq!(repo(None).map(|path| path.to_string()).as_deref(), Some(DEFAULT_REPO));
    }
}

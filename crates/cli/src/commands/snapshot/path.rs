//! Paths for the daemon, which does not know where the command was run.

use std::path::Path;

use crate::failure::Failure;

/// A path that means the same to the daemon.
pub(super) fn absolute(path: &Path) -> Result<String, Failure> {
    let absolute = std::path::absolute(path)
        .map_err(|error| Failure::new(format!("{} is no path: {error}", path.display())))?;
    let text = absolute.to_str();
    let text = text.ok_or_else(|| Failure::new(format!("{} is not UTF-8", path.display())));
    text.map(str::to_owned)
}

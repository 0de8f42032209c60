//! Makes paths absolute for the daemon, which has another working directory.

use std::path::Path;

use crate::failure::Failure;

/// The absolute path, as text for the daemon.
pub(super) fn absolute(path: &Path) -> Result<String, Failure> {
    let absolute = std::path::absolute(path)
        .map_err(|error| Failure::new(format!("invalid path {}: {error}", path.display())))?;
    let text = absolute.to_str();
    let text = text.ok_or_else(|| Failure::new(format!("the path {} is not valid UTF-8", path.display())));
    text.map(str::to_owned)
}

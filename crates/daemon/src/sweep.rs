//! Removing what a crash left behind in our own directories, and nothing else.
//!
//! Only names that we make ourselves are touched: `workspaces/<uuid>` and `run/<eight hexadecimal digits>`. What
//! the registry knows is asked again right before each removal, because workspaces are made meanwhile.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use agentiso_core::ids::WorkspaceId;

use crate::shared::Shared;

pub(crate) async fn run(shared: Arc<Shared>) {
    let known = |short: &str| shared.state().registry.knows_short(short);
    // Processes first: a machine must not write into a directory that is being removed.
    for line in shared.machines.remove_strays(&known).await {
        tracing::warn!("removed a stray: {line}");
    }
    let directories = Arc::clone(&shared);
    let swept = tokio::task::spawn_blocking(move || {
        let known = |short: &str| directories.state().registry.knows_short(short);
        let paths = &directories.config.paths;
        sweep(&paths.workspaces, &|name| name.parse::<WorkspaceId>().is_ok_and(|id| !known(&id.short())));
        sweep(&paths.run, &|name| is_short_id(name) && !known(name));
    });
    if let Err(error) = swept.await {
        tracing::error!(%error, "the leftovers of earlier runs were not all looked at");
    }
}

fn is_short_id(name: &str) -> bool {
    name.len() == 8 && name.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase())
}

fn sweep(directory: &Path, is_leftover: &dyn Fn(&str) -> bool) {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => {
            tracing::warn!(directory = %directory.display(), %error, "cannot be searched for leftovers");
            return;
        }
    };
    for entry in entries.flatten() {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_directory || !entry.file_name().to_str().is_some_and(is_leftover) {
            continue;
        }
        let path = entry.path();
        match fs::remove_dir_all(&path) {
            Ok(()) => tracing::warn!(leftover = %path.display(), "removed"),
            Err(error) => tracing::error!(leftover = %path.display(), %error, "could not be removed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_with_names_of_ours_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["0a1b2c3d", "keep-me!", "0A1B2C3D", "known000", "abcdabcd"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("deadbeef"), "a file, not a run directory").unwrap();
        sweep(dir.path(), &|name| is_short_id(name) && name != "abcdabcd");
        let mut left: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["0A1B2C3D", "abcdabcd", "deadbeef", "keep-me!", "known000"]);
    }

    #[test]
    fn a_link_to_somewhere_else_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("precious"), "x").unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("0a1b2c3d")).unwrap();
        sweep(dir.path(), &is_short_id);
        assert!(outside.path().join("precious").exists());
    }
}

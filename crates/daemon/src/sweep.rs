//! Removing what a crash left behind in our own directories, and nothing else.
//!
//! Directories are looked at when the daemon opens, before it makes any of its own, and removed afterwards in the
//! background, once the machines that used them are gone.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use agentiso_core::config::Paths;
use agentiso_host::strays::{stray_data_dirs, stray_run_dirs};

use crate::registry::Registry;
use crate::shared::Shared;

/// Directories named as ours that belong to no workspace of the ledger.
#[derive(Debug)]
pub(crate) struct Leftovers(Vec<PathBuf>);

impl Leftovers {
    pub(crate) fn find(paths: &Paths, registry: &Registry) -> Self {
        let known: HashSet<_> = registry.iter().map(|workspace| workspace.id).collect();
        let mut found = stray_data_dirs(&paths.workspaces, &known);
        found.extend(stray_run_dirs(&paths.run, &known));
        Self(found)
    }
}

pub(crate) async fn run(shared: Arc<Shared>, leftovers: Leftovers) {
    let known = |short: &str| shared.state().registry.knows_short(short);
    // Processes first: a machine must not write into a directory that is being removed.
    for line in shared.machines.remove_strays(&known).await {
        tracing::warn!("removed a stray: {line}");
    }
    let removal = tokio::task::spawn_blocking(move || {
        for path in leftovers.0 {
            match fs::remove_dir_all(&path) {
                Ok(()) => tracing::warn!(leftover = %path.display(), "removed"),
                // It went together with its stray machine.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => tracing::error!(leftover = %path.display(), %error, "could not be removed"),
            }
        }
    });
    if let Err(error) = removal.await {
        tracing::error!(%error, "the leftovers of earlier runs were not all removed");
    }
}

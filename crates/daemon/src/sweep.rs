//! Removing what a crash left behind, where a record says that it was never finished or was meant to go, and nothing
//! else.
//!
//! It is decided when the daemon opens, before it makes anything of its own, and done afterwards in the background:
//! machines first, so that none writes into a directory that is being removed.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use agentiso_core::config::Paths;
use agentiso_core::ids::WorkspaceId;
use agentiso_host::files;
use agentiso_host::strays::{remove_run_dir, stray_run_dirs};

use crate::machines::Stray;
use crate::shared::Shared;

/// What is to be removed.
#[derive(Debug)]
pub(crate) struct Leftovers {
    machines: Vec<Stray>,
    /// Their descriptions say that they are to go.
    directories: Vec<PathBuf>,
    /// Their names do.
    deleted: Vec<PathBuf>,
    /// Sockets of machines that have ended.
    run_dirs: Vec<PathBuf>,
}

impl Leftovers {
    /// `known` are the workspaces whose sockets stay.
    pub(crate) fn new(
        paths: &Paths,
        known: &BTreeSet<WorkspaceId>,
        machines: Vec<Stray>,
        directories: Vec<PathBuf>,
        deleted: Vec<PathBuf>,
    ) -> Self {
        let known: HashSet<WorkspaceId> = known.iter().copied().collect();
        Self { machines, directories, deleted, run_dirs: stray_run_dirs(&paths.run, &known) }
    }
}

pub(crate) async fn run(shared: Arc<Shared>, leftovers: Leftovers) {
    for stray in &leftovers.machines {
        let (pid, run_dir) = (stray.record.pid, stray.run_dir.display());
        match shared.machines.end_stray(stray).await {
            Ok(()) => tracing::warn!(pid, %run_dir, "ended a machine that was not finished, or meant to go"),
            Err(error) => tracing::error!(pid, %run_dir, error, "a machine could not be ended"),
        }
    }
    shared.network.strays_are_gone();
    let removal = tokio::task::spawn_blocking(move || {
        let discarded = leftovers.directories.into_iter().map(|path| (files::discard_dir(&path), path));
        let removed = leftovers.deleted.into_iter().map(|path| (files::remove_dir(&path), path));
        for (result, path) in discarded.chain(removed) {
            match result {
                Ok(()) => tracing::warn!(leftover = %path.display(), "removed"),
                Err(error) => tracing::error!(leftover = %path.display(), %error, "could not be removed"),
            }
        }
        for path in leftovers.run_dirs {
            let leftover = path.display();
            match remove_run_dir(&path) {
                Ok(true) => tracing::warn!(%leftover, "removed"),
                Ok(false) => tracing::error!(%leftover, "there are files in it that are not ours; it stays"),
                Err(error) => tracing::error!(%leftover, %error, "could not be removed"),
            }
        }
    });
    if let Err(error) = removal.await {
        tracing::error!(%error, "the leftovers of earlier runs were not all removed");
    }
}

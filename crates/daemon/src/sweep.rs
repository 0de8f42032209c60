//! Removes what a crash left behind, but only where a record says that it was never finished or was meant to be
//! removed.
//!
//! The decision is made when the daemon opens, before it makes anything of its own. The removal runs afterwards in
//! the background: VMs first, so that none writes into a directory that is being removed.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use agentiso_core::config::Paths;
use agentiso_core::ids::WorkspaceId;
use agentiso_host::strays::{remove_run_dir, stray_run_dirs};
use agentiso_sys::files;

use crate::shared::Shared;
use crate::vms::Stray;

/// Everything that is to be removed.
#[derive(Debug)]
pub(crate) struct Leftovers {
    vms: Vec<Stray>,
    /// Directories whose descriptions mark them for removal.
    directories: Vec<PathBuf>,
    /// Directories whose names mark them as deleted.
    deleted: Vec<PathBuf>,
    /// Socket directories of VMs that have ended.
    run_dirs: Vec<PathBuf>,
}

impl Leftovers {
    /// `known` lists the workspaces whose sockets stay.
    pub(crate) fn new(
        paths: &Paths,
        known: &BTreeSet<WorkspaceId>,
        vms: Vec<Stray>,
        directories: Vec<PathBuf>,
        deleted: Vec<PathBuf>,
    ) -> Self {
        let known: HashSet<WorkspaceId> = known.iter().copied().collect();
        Self { vms, directories, deleted, run_dirs: stray_run_dirs(&paths.run, &known) }
    }
}

pub(crate) async fn run(shared: Arc<Shared>, leftovers: Leftovers) {
    for stray in &leftovers.vms {
        let (pid, run_dir) = (stray.record.pid, stray.run_dir.display());
        match shared.vms.end_stray(stray).await {
            Ok(()) => tracing::warn!(pid, %run_dir, "killed a VM that was unfinished or being removed"),
            Err(error) => tracing::error!(pid, %run_dir, error, "cannot kill a VM"),
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
                Ok(false) => tracing::error!(%leftover, "not removed: it has files that are not agentiso's"),
                Err(error) => tracing::error!(%leftover, %error, "could not be removed"),
            }
        }
    });
    if let Err(error) = removal.await {
        tracing::error!(%error, "cannot remove all leftovers of earlier runs");
    }
}

//! The quarantine: directories and VMs that the daemon found and does not use. They stay untouched until a person
//! recovers or discards them.

use std::collections::BTreeMap;
use std::path::Path;

use agentiso_core::config::Paths;
use agentiso_core::ids::WorkspaceId;
use agentiso_core::team::Team;

use super::description::{
    self, DescribedWorkspace, Description, Holds, Marker, TeamKey, team_directory, workspace_file,
};
use super::error::LedgerError;

#[derive(Clone, Debug, Default)]
pub(crate) struct Quarantine {
    pub(crate) workspaces: BTreeMap<WorkspaceId, KeptWorkspace>,
    pub(crate) teams: BTreeMap<TeamKey, KeptTeam>,
}

#[derive(Clone, Debug)]
pub(crate) struct KeptWorkspace {
    pub(crate) marker: Marker,
    pub(crate) content: KeptContent,
}

/// The known content of a directory.
#[derive(Clone, Debug)]
pub(crate) enum KeptContent {
    Described(Box<DescribedWorkspace>),
    /// Described by a newer program, which alone can recover it.
    Newer(u64),
    /// There is no readable description.
    Undescribed,
    /// A VM runs, but it has no directory.
    VmOnly,
}

#[derive(Clone, Debug)]
pub(crate) struct KeptTeam {
    pub(crate) marker: Marker,
    pub(crate) team: Option<Team>,
}

impl Quarantine {
    /// Whether the first digits of an id, which name its run directory, are in use.
    pub(crate) fn knows_short(&self, short: &str) -> bool {
        self.workspaces.keys().any(|id| id.short() == short)
    }

    /// Writes a marker into each directory, so that the next start treats it in the same way. A marker that cannot
    /// be written is only reported: the directory stays all the same.
    pub(crate) fn mark(&self, paths: &Paths, revision: u64) {
        for (id, kept) in &self.workspaces {
            let directory = paths.workspace_data(id);
            // An entry of the ledger without a directory has nothing to mark.
            if !directory.is_dir() {
                continue;
            }
            let described = match &kept.content {
                // Only the ledger knew it, and the next save drops the entry.
                KeptContent::Described(workspace) if !workspace_file(&directory).exists() => {
                    let holds = Holds::Workspace(workspace.clone());
                    description::write_workspace(&directory, &Description::new(*id, revision, holds))
                }
                KeptContent::Described(_)
                | KeptContent::Newer(_)
                | KeptContent::Undescribed
                | KeptContent::VmOnly => Ok(()),
            };
            mark(&directory, &kept.marker, described);
        }
        for (key, kept) in &self.teams {
            mark(&team_directory(paths, key), &kept.marker, Ok(()));
        }
    }
}

/// A directory that is already marked keeps its marker.
fn mark(directory: &Path, marker: &Marker, described: Result<(), LedgerError>) {
    let marked = described.and_then(|()| match description::read_marker(directory)? {
        Some(_) => Ok(()),
        None => description::write_marker(directory, marker),
    });
    if let Err(error) = marked {
        tracing::error!(directory = %directory.display(), %error, "cannot mark the directory as quarantined");
    }
}

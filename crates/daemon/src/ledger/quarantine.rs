//! What the daemon found and does not use: it stays where it is until a person recovers or discards it.

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

/// What is known about a directory.
#[derive(Clone, Debug)]
pub(crate) enum KeptContent {
    Described(Box<DescribedWorkspace>),
    /// Of a newer program, which alone can bring it back.
    Newer(u64),
    /// There is no description that can be read.
    Undescribed,
    /// A machine runs, and there is no directory of its own.
    MachineOnly,
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

    /// Puts a mark into each directory, so that the next start finds it as this one did. One that cannot be written is
    /// reported: the directory stays all the same.
    pub(crate) fn mark(&self, paths: &Paths, revision: u64) {
        for (id, kept) in &self.workspaces {
            let directory = paths.workspace_data(id);
            // An entry of the ledger that has no directory leaves nothing that could be marked.
            if !directory.is_dir() {
                continue;
            }
            let described = match &kept.content {
                // It is known from the ledger alone, which forgets it now.
                KeptContent::Described(workspace) if !workspace_file(&directory).exists() => {
                    let holds = Holds::Workspace(workspace.clone());
                    description::write_workspace(&directory, &Description::new(*id, revision, holds))
                }
                KeptContent::Described(_)
                | KeptContent::Newer(_)
                | KeptContent::Undescribed
                | KeptContent::MachineOnly => Ok(()),
            };
            mark(&directory, &kept.marker, described);
        }
        for (key, kept) in &self.teams {
            mark(&team_directory(paths, key), &kept.marker, Ok(()));
        }
    }
}

/// A directory that is marked already keeps its mark.
fn mark(directory: &Path, marker: &Marker, described: Result<(), LedgerError>) {
    let marked = described.and_then(|()| match description::read_marker(directory)? {
        Some(_) => Ok(()),
        None => description::write_marker(directory, marker),
    });
    if let Err(error) = marked {
        tracing::error!(directory = %directory.display(), %error, "it cannot be marked as quarantined");
    }
}

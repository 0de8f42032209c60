//! Lists the items in quarantine, each with the space it takes on disk and the VM that runs on it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use agentiso_core::ids::WorkspaceId;
use serde::{Deserialize, Serialize};

use crate::error::{OpError, QuarantineError};
use crate::ledger::{KeptContent, TeamKey, team_directory};
use crate::session::Session;
use crate::vms::Stray;

/// Bytes in a block of `stat`, independent of the file system's block size.
const STAT_BLOCK: u64 = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuarantineKind {
    Workspace,
    Team,
    /// A VM that runs without a directory.
    Vm,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantineItem {
    pub kind: QuarantineKind,
    /// The argument of `recover`: a workspace's id, or `team:NAME.TIME`, which tells teams of one name apart.
    pub id: String,
    pub name: Option<String>,
    pub reason: String,
    pub since: jiff::Timestamp,
    /// Disk space of its files on the host, including blocks shared with other files.
    pub bytes: u64,
    /// Process id of the VM that runs on it.
    pub pid: Option<i32>,
}

/// An item in quarantine that a client asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Workspace(WorkspaceId),
    Team(TeamKey),
}

/// Minimum digits of an abbreviated id. Fewer are likely a typing error, and a discarded item cannot be brought back.
const MIN_ID_DIGITS: usize = 8;

/// Tells a team from a workspace of the same name.
const TEAM_PREFIX: &str = "team:";

pub(super) fn team_id(key: &TeamKey) -> String {
    format!("{TEAM_PREFIX}{key}")
}

impl Session {
    pub async fn quarantine(&self) -> Result<Vec<QuarantineItem>, OpError> {
        self.kind().refuse_inside()?;
        let (quarantine, paths) =
            (self.shared().state().registry.quarantine.clone(), self.shared().config.paths.clone());
        let vms = Arc::clone(&self.shared().vms);
        let listing = tokio::task::spawn_blocking(move || {
            let running = vms.strays();
            let pid = |id: &WorkspaceId| pid_of(&running, id);
            let workspaces = quarantine.workspaces.iter().map(|(id, kept)| {
                let (kind, name) = match &kept.content {
                    KeptContent::Described(workspace) => {
                        (QuarantineKind::Workspace, Some(workspace.entry.name.to_string()))
                    }
                    KeptContent::Newer(_) | KeptContent::Undescribed => (QuarantineKind::Workspace, None),
                    KeptContent::VmOnly => (QuarantineKind::Vm, None),
                };
                QuarantineItem {
                    kind,
                    id: id.to_string(),
                    name,
                    reason: kept.marker.reason.clone(),
                    since: kept.marker.since,
                    bytes: bytes_below(&paths.workspace_data(id)),
                    pid: pid(id),
                }
            });
            let bytes_of_team = |key: &TeamKey| {
                bytes_below(&team_directory(&paths, key)) + bytes_below(&paths.mail.join(key.to_string()))
            };
            let teams = quarantine.teams.iter().map(|(key, kept)| QuarantineItem {
                kind: QuarantineKind::Team,
                id: team_id(key),
                name: Some(key.name.to_string()),
                reason: kept.marker.reason.clone(),
                since: kept.marker.since,
                bytes: bytes_of_team(key),
                pid: None,
            });
            workspaces.chain(teams).collect()
        });
        listing.await.map_err(|_| OpError::ShuttingDown)
    }

    /// Finds the item that `wanted` names: an id, its first eight digits or more, a workspace's name, `team:NAME.TIME`,
    /// `team:NAME`, or a team's name.
    pub(super) fn find_in_quarantine(&self, wanted: &str) -> Result<Wanted, QuarantineError> {
        let state = self.shared().state();
        let quarantine = &state.registry.quarantine;
        let is_meant = |(id, kept): &(&WorkspaceId, &crate::ledger::KeptWorkspace)| {
            let named = match &kept.content {
                KeptContent::Described(workspace) => workspace.entry.name.as_str() == wanted,
                KeptContent::Newer(_) | KeptContent::Undescribed | KeptContent::VmOnly => false,
            };
            named || (wanted.len() >= MIN_ID_DIGITS && id.to_string().starts_with(wanted))
        };
        let mut found: Vec<Wanted> =
            quarantine.workspaces.iter().filter(is_meant).map(|(id, _)| Wanted::Workspace(*id)).collect();
        let team = wanted.strip_prefix(TEAM_PREFIX).unwrap_or(wanted);
        if found.is_empty() || team != wanted {
            let is_meant = |key: &&TeamKey| key.name.as_str() == team || key.to_string() == team;
            let teams = quarantine.teams.keys().filter(is_meant);
            found.extend(teams.cloned().map(Wanted::Team));
        }
        let count = found.len();
        match found.pop() {
            Some(one) if count == 1 => Ok(one),
            Some(_) => Err(QuarantineError::Ambiguous { wanted: shortened(wanted), count }),
            None => Err(QuarantineError::NotFound { wanted: shortened(wanted) }),
        }
    }
}

/// Shortens text from a client, which may be anything, for an error message.
fn shortened(wanted: &str) -> String {
    wanted.chars().take(128).collect()
}

pub(super) fn pid_of(running: &[Stray], id: &WorkspaceId) -> Option<i32> {
    running.iter().find(|stray| stray.id == *id && !stray.is_template_build()).map(|stray| stray.record.pid)
}

/// Bytes of all files below a directory. Files that cannot be read are not counted.
fn bytes_below(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => bytes_below(&entry.path()),
            Ok(found) => found.blocks() * STAT_BLOCK,
            Err(_) => 0,
        })
        .sum()
}

//! Descriptions of directories: `workspaces/<id>/workspace.json` and `team.json` below `teams/`.
//!
//! A description holds all that the ledger holds about one workspace or team, so that either can be rebuilt from
//! the other. It is written with the ledger, and only when it changes.

use std::fmt;
use std::path::{Path, PathBuf};

use agentiso_core::config::Paths;
use agentiso_core::ids::{SessionId, WorkspaceId};
use agentiso_core::lifecycle::Phase;
use agentiso_core::team::{Team, TeamName, TeamState};
use agentiso_sys::seal::{self, Seal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::LedgerError;
use super::schema::StoredWorkspace;
use super::whole_file::{self, Content};

/// The format of descriptions. A program that knows only a lower number cannot read it.
const FORMAT: u64 = 1;

/// A workspace with the most snapshots that can be configured takes less than half of this, and so does a team with
/// a hundred members and the longest texts. Larger descriptions are neither written nor read.
pub(super) const MAX_DESCRIPTION_BYTES: u64 = 16 << 20;

const WORKSPACE_FILE: &str = "workspace.json";
const TEAM_FILE: &str = "team.json";
const MARKER_FILE: &str = "quarantine.json";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    format: u64,
    pub id: WorkspaceId,
    /// The revision of the ledger it was written with.
    pub revision: u64,
    pub holds: Holds,
}

/// The purpose of a directory below `workspaces/`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    Workspace(Box<DescribedWorkspace>),
    /// A VM of the warm pool, which has no owner.
    Standby,
    /// Temporary files of an export.
    Scratch,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescribedWorkspace {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<DescribedOwner>,
    pub entry: StoredWorkspace,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescribedOwner {
    pub session_id: SessionId,
    pub created_at: jiff::Timestamp,
}

impl DescribedWorkspace {
    /// Whether it may be removed: it was never finished, was being destroyed, or existed for one call that ended
    /// with the daemon.
    pub(crate) fn is_meant_to_go(&self) -> bool {
        self.entry.one_call || matches!(self.entry.phase, Phase::Creating | Phase::Destroying)
    }
}

impl Description {
    pub fn new(id: WorkspaceId, revision: u64, holds: Holds) -> Self {
        Self { format: FORMAT, id, revision, holds }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeamDescription {
    format: u64,
    pub name: TeamName,
    pub revision: u64,
    pub team: Team,
}

impl TeamDescription {
    pub fn new(name: TeamName, revision: u64, team: Team) -> Self {
        Self { format: FORMAT, name, revision, team }
    }

    /// Whether it may be removed: it was never finished, or was being destroyed.
    pub(crate) fn is_meant_to_go(&self) -> bool {
        match self.team.state {
            TeamState::Creating | TeamState::Completing | TeamState::Destroyed => true,
            TeamState::Ready | TeamState::Working => false,
        }
    }
}

/// Marks a directory about which a person has to decide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    pub since: jiff::Timestamp,
    pub reason: String,
}

/// The result of reading a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Described<T> {
    Missing,
    Read(T),
    /// Written by a newer program, in this format.
    Newer(u64),
    Damaged(String),
}

pub(crate) fn workspace_file(directory: &Path) -> PathBuf {
    directory.join(WORKSPACE_FILE)
}

pub(crate) fn teams_directory(paths: &Paths) -> PathBuf {
    paths.data.join("teams")
}

/// Identifies the team of a directory below `teams/` and `mail/`: `<name>.<nanosecond of its creation>`. Teams
/// created one after the other under the same name have different keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TeamKey {
    pub name: TeamName,
    pub created_at: jiff::Timestamp,
}

impl TeamKey {
    pub fn of(name: &TeamName, team: &Team) -> Self {
        Self { name: name.clone(), created_at: team.created_at }
    }

    /// Parses the name of a directory; `None` if it is not one of ours.
    pub fn parse(directory: &str) -> Option<Self> {
        let (name, nanosecond) = directory.split_once('.')?;
        let created_at = jiff::Timestamp::from_nanosecond(nanosecond.parse().ok()?).ok()?;
        let key = Self { name: TeamName::parse(name).ok()?, created_at };
        // A team has exactly one directory name, so other spellings are refused.
        (key.to_string() == directory).then_some(key)
    }
}

impl fmt::Display for TeamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.name, self.created_at.as_nanosecond())
    }
}

pub(crate) fn team_directory(paths: &Paths, key: &TeamKey) -> PathBuf {
    teams_directory(paths).join(key.to_string())
}

pub(super) fn team_file(directory: &Path) -> PathBuf {
    directory.join(TEAM_FILE)
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<Described<T>, LedgerError> {
    #[derive(Deserialize)]
    struct Version {
        format: u64,
    }
    let text = match whole_file::read(path, MAX_DESCRIPTION_BYTES)? {
        Content::Absent => return Ok(Described::Missing),
        Content::Unusable(problem) => return Ok(Described::Damaged(problem)),
        Content::Text(text) => text,
    };
    // The version is parsed first, because a newer file may differ in everything else.
    Ok(match serde_json::from_str::<Version>(&text) {
        Err(error) => Described::Damaged(error.to_string()),
        Ok(Version { format }) if format > FORMAT => Described::Newer(format),
        Ok(_) if seal::check(&text) == Seal::Broken => {
            Described::Damaged("its checksum does not match its content".to_owned())
        }
        Ok(_) => match serde_json::from_str(&text) {
            Ok(read) => Described::Read(read),
            Err(error) => Described::Damaged(error.to_string()),
        },
    })
}

/// Reads the description of the workspace after which the directory is named.
pub fn read_workspace(directory: &Path, id: WorkspaceId) -> Result<Described<Description>, LedgerError> {
    let described = read::<Description>(&workspace_file(directory))?;
    if let Described::Read(other) = &described
        && other.id != id
    {
        return Ok(Described::Damaged(format!("it describes workspace {}", other.id)));
    }
    Ok(described)
}

/// Reads the description of the team after which the directory is named.
pub fn read_team(directory: &Path, key: &TeamKey) -> Result<Described<TeamDescription>, LedgerError> {
    let described = read::<TeamDescription>(&team_file(directory))?;
    if let Described::Read(other) = &described
        && TeamKey::of(&other.name, &other.team) != *key
    {
        let other = TeamKey::of(&other.name, &other.team);
        return Ok(Described::Damaged(format!("it describes team {other}")));
    }
    Ok(described)
}

fn write(path: &Path, value: &impl Serialize) -> Result<(), LedgerError> {
    let text = serde_json::to_string_pretty(value).map_err(LedgerError::Serialize)?;
    whole_file::replace(path, seal::seal(&text).as_bytes(), MAX_DESCRIPTION_BYTES)
}

/// The directory must exist.
pub(crate) fn write_workspace(directory: &Path, description: &Description) -> Result<(), LedgerError> {
    write(&workspace_file(directory), description)
}

pub(crate) fn write_team(directory: &Path, description: &TeamDescription) -> Result<(), LedgerError> {
    write(&team_file(directory), description)
}

/// Keeps an unreadable description under another name, so that the ledger's can replace it.
pub(crate) fn keep_damaged(directory: &Path, now: jiff::Timestamp) -> Result<PathBuf, LedgerError> {
    whole_file::keep_aside(&workspace_file(directory), now)
}

/// A marker that exists but cannot be read still marks the directory.
pub(crate) fn read_marker(directory: &Path) -> Result<Option<Marker>, LedgerError> {
    let unreadable = |problem: String| Marker {
        since: jiff::Timestamp::UNIX_EPOCH,
        reason: format!("its {MARKER_FILE} cannot be read: {problem}"),
    };
    Ok(match whole_file::read(&directory.join(MARKER_FILE), MAX_DESCRIPTION_BYTES)? {
        Content::Absent => None,
        Content::Unusable(problem) => Some(unreadable(problem)),
        Content::Text(text) => {
            Some(serde_json::from_str(&text).unwrap_or_else(|error| unreadable(error.to_string())))
        }
    })
}

pub(crate) fn write_marker(directory: &Path, marker: &Marker) -> Result<(), LedgerError> {
    write(&directory.join(MARKER_FILE), marker)
}

pub(crate) fn remove_marker(directory: &Path) -> Result<(), LedgerError> {
    let path = directory.join(MARKER_FILE);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(LedgerError::io(&path, error)),
        Ok(()) | Err(_) => whole_file::sync_directory(&path),
    }
}

/// Whether the directory is empty, apart from an unfinished description.
pub(crate) fn is_empty(directory: &Path) -> bool {
    let unfinished = whole_file::temporary(Path::new(WORKSPACE_FILE));
    let Ok(entries) = std::fs::read_dir(directory) else { return false };
    entries.into_iter().all(|entry| entry.is_ok_and(|entry| entry.file_name() == unfinished.as_os_str()))
}

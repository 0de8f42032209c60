//! Lists the directories below `workspaces/`, `teams/` and `mail/` when a daemon starts. Nothing is changed.

use std::fs;
use std::path::{Path, PathBuf};

use agentiso_core::config::Paths;
use agentiso_core::ids::WorkspaceId;
use agentiso_sys::files::DELETED;

use super::description::{
    self, Described, Description, Marker, TeamDescription, TeamKey, is_empty, read_marker, teams_directory,
};
use super::error::LedgerError;

/// Everything that was found. Names that are not ours are left out.
#[derive(Debug, Default)]
pub struct Survey {
    pub workspaces: Vec<FoundWorkspace>,
    pub teams: Vec<FoundTeam>,
    /// The teams that have a directory below `mail/`.
    pub mail: Vec<TeamKey>,
    /// Directories whose name marks them as being deleted.
    pub deleted: Vec<PathBuf>,
}

#[derive(Debug)]
pub struct FoundWorkspace {
    pub id: WorkspaceId,
    pub path: PathBuf,
    pub described: Described<Description>,
    pub marker: Option<Marker>,
    /// Whether it contains nothing that could be lost.
    pub empty: bool,
}

#[derive(Debug)]
pub struct FoundTeam {
    pub key: TeamKey,
    pub path: PathBuf,
    pub described: Described<TeamDescription>,
    pub marker: Option<Marker>,
}

/// Looks at all directories. An unreadable description counts as damaged; only a list that cannot be read is an
/// error.
pub fn survey(paths: &Paths) -> Result<Survey, LedgerError> {
    let mut survey = Survey::default();
    for (name, path) in directories(&paths.workspaces)? {
        match (name.parse::<WorkspaceId>(), name.strip_suffix(DELETED)) {
            (Ok(id), _) if id.to_string() == name => survey.workspaces.push(FoundWorkspace {
                described: read(description::read_workspace(&path, id)),
                marker: marker(&path),
                empty: is_empty(&path),
                id,
                path,
            }),
            (_, Some(stem)) if stem.parse::<WorkspaceId>().is_ok() => survey.deleted.push(path),
            (_, _) => {}
        }
    }
    for (name, path) in directories(&teams_directory(paths))? {
        match (TeamKey::parse(&name), name.strip_suffix(DELETED)) {
            (Some(key), _) => survey.teams.push(FoundTeam {
                described: read(description::read_team(&path, &key)),
                marker: marker(&path),
                key,
                path,
            }),
            (None, Some(stem)) if TeamKey::parse(stem).is_some() => survey.deleted.push(path),
            (None, _) => {}
        }
    }
    for (name, path) in directories(&paths.mail)? {
        match (TeamKey::parse(&name), name.strip_suffix(DELETED)) {
            (Some(key), _) => survey.mail.push(key),
            (None, Some(stem)) if TeamKey::parse(stem).is_some() => survey.deleted.push(path),
            (None, _) => {}
        }
    }
    Ok(survey)
}

fn read<T>(described: Result<Described<T>, LedgerError>) -> Described<T> {
    described.unwrap_or_else(|error| Described::Damaged(error.to_string()))
}

fn marker(path: &Path) -> Option<Marker> {
    read_marker(path).unwrap_or_else(|error| {
        Some(Marker { since: jiff::Timestamp::UNIX_EPOCH, reason: error.to_string() })
    })
}

/// The subdirectories of a directory, by name. A missing directory has none.
fn directories(root: &Path) -> Result<Vec<(String, PathBuf)>, LedgerError> {
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(LedgerError::io(root, error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| LedgerError::io(root, error))?;
        let kind = entry.file_type().map_err(|error| LedgerError::io(root, error))?;
        if let (true, Ok(name)) = (kind.is_dir(), entry.file_name().into_string()) {
            found.push((name, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

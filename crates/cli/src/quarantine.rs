//! What is in quarantine, as the directories say it: without a daemon.

use std::path::PathBuf;

use agentiso_core::config::Paths;
use agentiso_core::names::ImageName;
use agentiso_daemon::ledger::{self, Described, Description, Found, Holds, Marker, TeamKey};
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(crate) struct Quarantined {
    /// A workspace's id, or `team:NAME.TIME`: what `agentiso recover` takes.
    pub(crate) what: String,
    pub(crate) since: jiff::Timestamp,
    pub(crate) reason: String,
    /// What a workspace was made from, if that can be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<ImageName>,
}

/// How a team is told from a workspace.
const TEAM_PREFIX: &str = "team:";

impl Quarantined {
    pub(crate) fn is_team(&self) -> bool {
        self.what.starts_with(TEAM_PREFIX)
    }
}

/// The directories that carry a mark, those of workspaces first. Directories that cannot be listed have none to show.
pub(crate) fn found(paths: &Paths) -> Vec<Quarantined> {
    let survey = ledger::survey(paths).unwrap_or_default();
    let mut found = Vec::new();
    for directory in survey.workspaces {
        if let Some(Marker { since, reason }) = directory.marker {
            let image = image_of(directory.described);
            found.push(Quarantined { what: directory.id.to_string(), since, reason, image });
        }
    }
    for directory in survey.teams {
        if let Some(Marker { since, reason }) = directory.marker {
            let what = format!("{TEAM_PREFIX}{}", directory.key);
            found.push(Quarantined { what, since, reason, image: None });
        }
    }
    found
}

/// Directories of mail whose team is neither in the ledger nor below `teams/`. Nobody uses them.
pub(crate) fn orphaned_mail(paths: &Paths) -> Vec<PathBuf> {
    let survey = ledger::survey(paths).unwrap_or_default();
    let document = match ledger::read(&paths.state_file) {
        Ok(Found::Whole(document)) => Some(document),
        Ok(Found::Damaged { document, .. }) => document,
        Ok(Found::Absent) => None,
        // Whose mail it is cannot be told.
        Err(_) => return Vec::new(),
    };
    let is_listed = |key: &TeamKey| {
        let team = document.as_ref().and_then(|document| document.teams.get(&key.name));
        team.is_some_and(|team| team.created_at == key.created_at)
    };
    let is_described = |key: &TeamKey| survey.teams.iter().any(|team| team.key == *key);
    let orphans = survey.mail.iter().filter(|key| !is_listed(key) && !is_described(key));
    orphans.map(|key| paths.mail.join(key.to_string())).collect()
}

fn image_of(described: Described<Description>) -> Option<ImageName> {
    match described {
        Described::Read(Description { holds: Holds::Workspace(workspace), .. }) => {
            Some(workspace.entry.image.name)
        }
        Described::Read(_) | Described::Missing | Described::Newer(_) | Described::Damaged(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use agentiso_core::config::{Config, UserDirs};

    use super::*;

    #[test]
    fn mail_without_a_team_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = UserDirs { uid: 1000, home: dir.path().into(), state_home: None, runtime_dir: None };
        let text = format!("[server]\nstate_file = \"{}/state.json\"\n", dir.path().display());
        let paths = Config::parse(&text, &dirs).unwrap().paths;
        assert!(orphaned_mail(&paths).is_empty());
        let teams = paths.data.join("teams");
        for directory in [teams.join("crew.1"), paths.mail.join("crew.1"), paths.mail.join("crew.2")] {
            fs::create_dir_all(directory).unwrap();
        }
        fs::create_dir(paths.mail.join("not ours")).unwrap();
        assert_eq!(orphaned_mail(&paths), [paths.mail.join("crew.2")]);
    }
}

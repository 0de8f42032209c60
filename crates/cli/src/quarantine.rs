//! Finds the items in quarantine by directories and processes, without the daemon.

use std::collections::HashSet;
use std::path::PathBuf;

use agentiso_core::config::Paths;
use agentiso_core::names::ImageName;
use agentiso_daemon::ledger::{self, Described, Description, Found, Holds, Marker, TeamKey};
use agentiso_daemon::others_vms;
use agentiso_host::strays;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(crate) struct Quarantined {
    /// A workspace's id, or `team:NAME.TIME`, as `agentiso recover` accepts it.
    pub(crate) what: String,
    /// Unknown for a VM without a directory, because only directories are marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<jiff::Timestamp>,
    pub(crate) reason: String,
    /// The image of a workspace, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<ImageName>,
}

/// The prefix that distinguishes a team from a workspace.
const TEAM_PREFIX: &str = "team:";

impl Quarantined {
    pub(crate) fn is_team(&self) -> bool {
        self.what.starts_with(TEAM_PREFIX)
    }
}

/// The marked directories of workspaces, the VMs without a directory, and the marked directories of teams. Directories
/// that cannot be listed are left out.
pub(crate) fn found(paths: &Paths) -> Vec<Quarantined> {
    let survey = ledger::survey(paths).unwrap_or_default();
    let mut found = Vec::new();
    for directory in survey.workspaces {
        if let Some(Marker { since, reason }) = directory.marker {
            let image = image_of(directory.described);
            found.push(Quarantined { what: directory.id.to_string(), since: Some(since), reason, image });
        }
    }
    found.extend(vms(paths));
    for directory in survey.teams {
        if let Some(Marker { since, reason }) = directory.marker {
            let what = format!("{TEAM_PREFIX}{}", directory.key);
            found.push(Quarantined { what, since: Some(since), reason, image: None });
        }
    }
    found
}

/// VMs in our run directory that have no directory and are not in the ledger.
fn vms(paths: &Paths) -> Vec<Quarantined> {
    // These VMs belong to another state file, and `agentiso recover` for this one cannot reach them.
    if others_vms(paths).is_some() {
        return Vec::new();
    }
    // Without the ledger it is unknown which VMs belong to workspaces.
    let Ok(ledger) = ledger::read(&paths.state_file) else { return Vec::new() };
    let listed = ledger.into_document().map(|document| document.workspaces).unwrap_or_default();
    let running = strays::find_strays(&paths.run, &HashSet::new()).unwrap_or_default();
    let unknown = running.into_iter().filter(|vm| {
        let is_known = listed.contains_key(&vm.id) || paths.workspace_data(&vm.id).exists();
        !is_known && !vm.is_template_build()
    });
    unknown
        .map(|vm| Quarantined {
            what: vm.id.to_string(),
            since: None,
            reason: format!("its VM is running (pid {}) but has no directory here", vm.record.pid),
            image: None,
        })
        .collect()
}

/// Unused directories of inboxes: their team is neither in the ledger nor below `teams/`.
pub(crate) fn orphaned_mail(paths: &Paths) -> Vec<PathBuf> {
    let survey = ledger::survey(paths).unwrap_or_default();
    let document = match ledger::read(&paths.state_file) {
        Ok(Found::Whole(document)) => Some(document),
        Ok(Found::Damaged { document, .. }) => document,
        Ok(Found::Absent) => None,
        // Without the ledger it is unknown which teams exist.
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
#[expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]
mod tests {
    use std::fs;
    use std::path::Path;

    use agentiso_core::config::{Config, UserDirs};

    use super::*;

    fn paths_in(dir: &Path) -> Paths {
        let dirs = UserDirs { uid: 1000, home: dir.into(), state_home: None, runtime_dir: None };
        let text = format!("[server]\nstate_file = \"{}/state.json\"\n", dir.display());
        Config::parse(&text, &dirs).unwrap().paths
    }

    #[test]
    fn vms_without_a_directory_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths_in(dir.path());
        let id = agentiso_core::ids::WorkspaceId::random();
        // It must not be a child of this process, because our own children are not strays.
        // The process prints its own pid, so its command line is complete by then. It stops itself instead of running
        // `sleep`: between fork and exec a child shows the same command line as its parent.
        let waits =
            "sh -c 'echo $$; exec >/dev/null; kill -STOP $$' x -name \"$1\" -pidfile \"$2\" 2>/dev/null &";
        let mut command = std::process::Command::new("sh");
        command.args(["-c", waits, "x", &format!("agentiso-{id}")]);
        let started = command.arg(paths.workspace_run(&id).join("qemu.pid")).output().unwrap();
        let pid: i32 = String::from_utf8_lossy(&started.stdout).trim().parse().unwrap();
        let shown: Vec<_> = found(&paths).into_iter().map(|item| (item.what, item.reason)).collect();
        fs::create_dir_all(&paths.run).unwrap();
        fs::write(paths.run.join("owner"), "1\n/elsewhere/state.json\n").unwrap();
        let of_another = found(&paths).len();
        fs::remove_file(paths.run.join("owner")).unwrap();
        fs::create_dir_all(paths.workspace_data(&id)).unwrap();
        let with_directory = found(&paths).len();
        let pid_of_it = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid_of_it, rustix::process::Signal::KILL).unwrap();
        assert_eq!((shown.len(), of_another, with_directory), (1, 0, 0), "{shown:?}");
        assert!(shown[0].0 == id.to_string() && shown[0].1.contains(&pid.to_string()), "{shown:?}");
    }

    #[test]
    fn mail_without_a_team_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths_in(dir.path());
        assert!(orphaned_mail(&paths).is_empty());
        let teams = paths.data.join("teams");
        for directory in [teams.join("crew.1"), paths.mail.join("crew.1"), paths.mail.join("crew.2")] {
            fs::create_dir_all(directory).unwrap();
        }
        fs::create_dir(paths.mail.join("not ours")).unwrap();
        assert_eq!(orphaned_mail(&paths), [paths.mail.join("crew.2")]);
    }
}

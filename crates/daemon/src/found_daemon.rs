//! Finds the running daemon without asking it, by the locks it holds and the files it wrote beside them.

use agentiso_core::config::Paths;

use crate::lock::{running_daemon, served};
use crate::run_dir::{Owner, identity, owner_of, share_directory};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundDaemon {
    /// A daemon that serves the state file of this configuration.
    Ours { pid: u32 },
    /// A daemon that serves another state file, but uses the run directory or the state directory of this
    /// configuration.
    Other {
        owner: Owner,
        /// See [`share_directory`].
        in_our_directory: bool,
    },
}

/// Finds the daemon that connecting would reach: the owner of the run directory is checked first, because it is the
/// one that listens there.
pub fn find_daemon(paths: &Paths) -> Option<FoundDaemon> {
    let ours = identity(&paths.state_file);
    let other = |owner: Owner| {
        let in_our_directory = share_directory(&owner.state_file, &ours);
        FoundDaemon::Other { owner, in_our_directory }
    };
    if let Some(owner) = owner_of(&paths.run).filter(|owner| owner.state_file != ours) {
        return Some(other(owner));
    }
    let lock = paths.lock_file();
    let pid = running_daemon(&lock)?;
    Some(match served(&lock).filter(|theirs| *theirs != ours) {
        Some(state_file) => other(Owner { pid, state_file }),
        None => FoundDaemon::Ours { pid },
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::lock::InstanceLock;
    use crate::run_dir::RunDirLock;

    /// Paths for a state file below `root`.
    fn paths(root: &Path, state_file: &str, run: &str) -> Paths {
        let (state_file, run) = (root.join(state_file), root.join(run));
        fs::create_dir_all(state_file.parent().unwrap()).unwrap();
        fs::create_dir_all(&run).unwrap();
        let text = format!("[server]\nstate_file = {state_file:?}\n[vm]\nrun_dir = {run:?}\n");
        let dirs = agentiso_core::config::UserDirs {
            uid: 1000,
            home: root.into(),
            state_home: None,
            runtime_dir: None,
        };
        agentiso_core::config::Config::parse(&text, &dirs).unwrap().paths
    }

    /// The locks that a daemon holds while it runs.
    fn run(paths: &Paths) -> (InstanceLock, RunDirLock) {
        let state_file = identity(&paths.state_file);
        let lock = InstanceLock::acquire_for(&paths.lock_file(), "daemon", Some(&state_file)).unwrap();
        (lock, RunDirLock::acquire(paths).unwrap())
    }

    /// The state file that is served instead of ours, and whether it is in the same directory.
    fn served_instead(paths: &Paths) -> (String, bool) {
        match find_daemon(paths) {
            Some(FoundDaemon::Other { owner, in_our_directory }) => (owner.state_file, in_our_directory),
            found => panic!("{found:?}"),
        }
    }

    #[test]
    fn own_daemon_is_found_while_it_runs() {
        let root = tempfile::tempdir().unwrap();
        let one = paths(root.path(), "one/state.json", "run");
        assert_eq!(find_daemon(&one), None);
        let held = run(&one);
        assert_eq!(find_daemon(&one), Some(FoundDaemon::Ours { pid: std::process::id() }));
        drop(held);
        assert_eq!(find_daemon(&one), None);
    }

    #[test]
    fn renamed_state_file_reports_another_daemon() {
        let root = tempfile::tempdir().unwrap();
        let one = paths(root.path(), "one/state.json", "run");
        let _held = run(&one);
        for run in ["run", "other-run"] {
            let (theirs, in_our_directory) = served_instead(&paths(root.path(), "one/ledger.json", run));
            assert!(theirs.ends_with("one/state.json") && in_our_directory, "{theirs}");
        }
    }

    #[test]
    fn shared_run_directory_reports_another_daemon() {
        let root = tempfile::tempdir().unwrap();
        let _held = run(&paths(root.path(), "one/state.json", "run"));
        let (theirs, in_our_directory) = served_instead(&paths(root.path(), "two/state.json", "run"));
        assert!(theirs.ends_with("one/state.json") && !in_our_directory, "{theirs}");
    }
}

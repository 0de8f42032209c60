//! What is said of a daemon that serves another state file than this configuration names.

use agentiso_core::config::Paths;
use agentiso_daemon::Owner;

pub(crate) fn sentence(paths: &Paths, owner: &Owner) -> String {
    let Owner { pid, state_file } = owner;
    format!("the daemon of {state_file} (pid {pid}) runs, and not one of {}", paths.state_file.display())
}

/// What is said of its machines when it is gone and they run on.
pub(crate) fn machines_sentence(paths: &Paths, owner: &Owner, machines: usize) -> String {
    let (run, state_file) = (paths.run.display(), &owner.state_file);
    format!(
        "not running, and refused when it is started: vm.run_dir {run} belongs to {state_file}, and {machines} of its \
         machines still run there"
    )
}

/// `in_our_directory`: its state file is in the directory of ours, and one lock is for both.
pub(crate) fn hint(in_our_directory: bool) -> &'static str {
    match in_our_directory {
        true => {
            "stop that daemon with the configuration it was started with (`agentiso daemon stop`), or set \
             server.state_file back"
        }
        false => "give this configuration a vm.run_dir of its own, or use the configuration of that daemon",
    }
}

//! Messages about a daemon that serves another state file than that of this configuration.

use agentiso_core::config::Paths;
use agentiso_daemon::Owner;

pub(crate) fn sentence(paths: &Paths, owner: &Owner) -> String {
    let Owner { pid, state_file } = owner;
    format!(
        "the running daemon (pid {pid}) uses the state file {state_file}, not {}",
        paths.state_file.display()
    )
}

/// The message about its VMs that still run after it has ended.
pub(crate) fn vms_sentence(paths: &Paths, owner: &Owner, vms: usize) -> String {
    let (run, state_file) = (paths.run.display(), &owner.state_file);
    format!(
        "not running, and cannot start: vm.run_dir {run} belongs to {state_file}, and {vms} of its VMs are still \
         running there"
    )
}

/// `in_our_directory`: both state files are in the same directory and share one lock.
pub(crate) fn hint(in_our_directory: bool) -> &'static str {
    match in_our_directory {
        true => {
            "stop that daemon with its own configuration (`agentiso daemon stop`), or set server.state_file back"
        }
        false => "set a different vm.run_dir in this configuration, or use the configuration of that daemon",
    }
}

//! Hints for a person at a shell, about errors of the daemon.

use agentiso_core::lifecycle::Refusal;
use agentiso_core::team::TeamRefusal;
use agentiso_daemon::vms::{AgentFailure, CarryFailure, SnapshotFailure};
use agentiso_daemon::{ForwardError, McpBridgeError, OpError, QuarantineError, SwarmError, TeamError};

/// The hint for an error; it names only commands of `agentiso`.
pub(crate) fn of(error: &OpError) -> Option<String> {
    let text = match error {
        OpError::NotFound { .. } => "`agentiso ps` shows all workspaces".to_owned(),
        OpError::WrongState { refusal, name, .. } => of_refusal(*refusal, name.as_str()),
        OpError::NameTaken { name } => format!("choose another name, or `agentiso rm {name}` first"),
        OpError::TooManyWorkspaces { .. }
        | OpError::TooManyVms { .. }
        | OpError::Quota(_)
        | OpError::NoAddress(_) => "`agentiso rm` workspaces that are no longer needed".to_owned(),
        OpError::HostMemory(_) => "ask for less memory, or stop or remove another workspace".to_owned(),
        OpError::Policy(_) => "correct the fields named above; the others keep their values".to_owned(),
        OpError::TooManyForwards { name } => format!("remove one with `agentiso net unforward {name} PORT`"),
        OpError::Forward { source: ForwardError::Exists { guest_port, .. }, name, .. } => {
            format!("use it as it is, or `agentiso net unforward {name} {guest_port}` first")
        }
        OpError::Forward { .. } | OpError::OwnPort { .. } => {
            "omit the host port to get a free one, or give another one from 1024 on".to_owned()
        }
        OpError::NoForward { .. } => "`agentiso net ls` shows the ports that are forwarded".to_owned(),
        OpError::NoSpace { .. }
        | OpError::HostSpace(_)
        | OpError::Ledger(_)
        | OpError::Snapshot { source: SnapshotFailure::NoSpace { .. }, .. } => {
            "free space on the host's disk, or delete snapshots or workspaces that are no longer needed"
                .to_owned()
        }
        OpError::DiskQuota { name, .. } | OpError::TooManySnapshots { name, .. } => {
            format!("delete snapshots that are no longer needed: `agentiso snapshot rm {name} SNAPSHOT`")
        }
        OpError::SnapshotNotFound { name, .. } => format!("`agentiso snapshot ls {name}` shows all"),
        OpError::SnapshotNameTaken { name, snapshot } => {
            format!("choose another name, or `agentiso snapshot rm {name} {snapshot}` first")
        }
        OpError::SnapshotInUse { forks, .. } => format!("`agentiso rm {}` first", forks.join(" ")),
        OpError::Snapshot { source: SnapshotFailure::Failed { .. }, name, .. } => {
            format!("try again; `agentiso logs {name}` shows the VM's messages")
        }
        OpError::SetupFailed { .. } => {
            "correct the command, or fork without it and run it with `agentiso exec` to see its output"
                .to_owned()
        }
        OpError::RelativePath { .. } => "give a path that begins with /".to_owned(),
        OpError::Export { source, .. } | OpError::Import { source, .. } => match source {
            CarryFailure::NoSpace { .. } => "free space on the host's disk".to_owned(),
            CarryFailure::Exists { .. } => "choose another name, or replace it with --force".to_owned(),
            CarryFailure::Unusable { .. } => "export the snapshot again, then copy the new file".to_owned(),
            CarryFailure::Failed { .. } => return None,
        },
        OpError::NoImage { known, .. } if known.is_empty() => "run `agentiso init`".to_owned(),
        OpError::NoImage { name, .. } => format!("use one of these, or run `agentiso image build {name}`"),
        OpError::BrokenImage { name, .. } => format!("run `agentiso image build {name} --force`"),
        OpError::Boot { .. } => {
            "`agentiso check` shows what this host lacks; the daemon's log has the details".to_owned()
        }
        OpError::HostUnfit { .. } => "run `agentiso check`; it names what is missing".to_owned(),
        OpError::Guest {
            source: AgentFailure::Silent { .. } | AgentFailure::Broken { .. }, name, ..
        } => {
            format!(
                "look at `agentiso logs {name}`; `agentiso stop {name}` and `agentiso start {name}` restart the VM"
            )
        }
        OpError::Guest { source: AgentFailure::Unsupported { .. }, name, .. } => format!(
            "restart the VM with `agentiso stop {name}` and `agentiso start {name}`, which brings the current agent \
             but ends all running processes"
        ),
        OpError::VmDied { name, .. } => {
            format!("`agentiso logs {name}` shows its last output; `agentiso start {name}` starts it again")
        }
        OpError::Erase { .. } | OpError::Swarm(SwarmError::NoWorker(_)) => {
            "remove the cause, then try again".to_owned()
        }
        OpError::Busy { .. } | OpError::StillAttaching { .. } => "try again in a moment".to_owned(),
        OpError::OutOfReach { name, .. } => {
            format!("the daemon keeps trying; `agentiso stop {name}` kills the VM without asking the guest")
        }
        OpError::McpBridge(McpBridgeError::Disabled) => {
            "set mcp_bridge.enabled = true in the configuration".to_owned()
        }
        OpError::McpBridge(McpBridgeError::Token(_)) => "the daemon's log has the details".to_owned(),
        OpError::Team(TeamError::Refused(TeamRefusal::NotFound { known, .. })) if !known.is_empty() => {
            format!("there are: {}", known.join(", "))
        }
        OpError::Quarantine(error) => of_quarantine(error).to_owned(),
        OpError::VaultDisabled => "set vault.enabled and vault.path in the configuration".to_owned(),
        // Shell users own every workspace, and no command calls git, teams, notes or transfers through the daemon.
        OpError::NotOwned { .. }
        | OpError::OwnerActive { .. }
        | OpError::OwnerConnected { .. }
        | OpError::OutOfRange(_)
        | OpError::RateLimited(_)
        | OpError::Guest { source: AgentFailure::Refused { .. }, .. }
        | OpError::Transfer { .. }
        | OpError::Logs { .. }
        | OpError::Git(_)
        | OpError::Prepare(_)
        | OpError::Swarm(_)
        | OpError::McpBridge(_)
        | OpError::Team(_)
        | OpError::Vault(_)
        | OpError::Board(_)
        | OpError::Cancelled
        | OpError::ShuttingDown => return None,
    };
    Some(text)
}

fn of_refusal(refusal: Refusal, name: &str) -> String {
    match refusal {
        Refusal::NotRunning => format!("`agentiso start {name}`"),
        Refusal::AlreadyRunning => format!("use it as it is, or `agentiso stop {name}` first"),
        Refusal::BeingCreated | Refusal::BeingStarted | Refusal::BeingStopped | Refusal::BeingRestored => {
            "try again in a moment; `agentiso ps` shows its state".to_owned()
        }
        Refusal::Suspended => {
            "free space on the host's disk or delete snapshots; the workspace then resumes by itself"
                .to_owned()
        }
        Refusal::BeingDestroyed => "create another with `agentiso create`".to_owned(),
    }
}

fn of_quarantine(error: &QuarantineError) -> &'static str {
    match error {
        QuarantineError::NotFound { .. } => "`agentiso recover` lists everything in quarantine",
        QuarantineError::Ambiguous { .. } => "use the id that `agentiso recover` shows",
        QuarantineError::Newer { .. } => "install that version or a newer one, then recover it",
        QuarantineError::Unusable { .. }
        | QuarantineError::NotDiscarded { .. }
        | QuarantineError::Mark { .. } => "its files are still in place; the daemon's log has the details",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentiso_core::names::{ImageName, SnapshotName, WorkspaceName};

    #[test]
    fn hints_name_commands_with_their_arguments() {
        let name = WorkspaceName::parse("web").unwrap();
        let snapshot = SnapshotName::parse("a").unwrap();
        let forks = vec!["w-1".to_owned(), "w-2".to_owned()];
        let in_use = OpError::SnapshotInUse { name: name.clone(), snapshot, forks };
        assert_eq!(of(&in_use).unwrap(), "`agentiso rm w-1 w-2` first");
        let stopped = OpError::WrongState { name, refusal: Refusal::NotRunning, stop_reason: None };
        assert_eq!(of(&stopped).unwrap(), "`agentiso start web`");
        let no_image = OpError::NoImage { name: ImageName::parse("debian-dev").unwrap(), known: Vec::new() };
        assert_eq!(of(&no_image).unwrap(), "run `agentiso init`");
    }
}

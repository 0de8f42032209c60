//! Errors of operations on workspaces, in words that name the workspace.
//!
//! What a client can do about an error depends on the client, so hints are made by `agentiso-mcp` and the command line.

mod code;
mod git;
mod mcp_bridge;
mod prepare;
mod quarantine;
mod swarm;
mod team;

use std::path::PathBuf;

use agentiso_core::address::SubnetFull;
use agentiso_core::ids::{SessionId, SnapshotId};
use agentiso_core::lifecycle::Refusal;
use agentiso_core::memory::HostMemoryShort;
use agentiso_core::names::{ImageName, SnapshotName, WorkspaceName};
use agentiso_core::network::PolicyProblems;
use agentiso_core::quota::QuotaExceeded;
use agentiso_core::rate::RateLimited;
use agentiso_core::resources::OutOfRange;
use agentiso_core::space::HostSpaceShort;
use agentiso_net::flow::ForwardError;
use agentiso_sys::transfer::TransferError;
use agentiso_vault::VaultError;
use agentiso_vault::board::BoardError;
use thiserror::Error;

use crate::info::MAX_FORWARDS;
use crate::ledger::LedgerError;
use crate::vms::{AgentFailure, BootFailure, CarryFailure, EraseFailure, SnapshotFailure, Unrecorded};

pub use git::GitError;
pub use mcp_bridge::McpBridgeError;
pub use prepare::PrepareError;
pub use quarantine::QuarantineError;
pub use swarm::SwarmError;
pub(crate) use swarm::{MAX_QUERIES, MAX_QUERY, MAX_TASKS};
pub use team::TeamError;

const MIB: u64 = 1 << 20;

#[derive(Debug, Error)]
pub enum OpError {
    #[error("there is no workspace {wanted:?}{}", did_you_mean(.nearest))]
    NotFound { wanted: String, nearest: Option<String>, known: Vec<String> },
    #[error("workspace {name} {}", owner_words(.owner, *.idle_secs))]
    NotOwned {
        name: WorkspaceName,
        owner: Option<SessionId>,
        /// The time that a connected owner has been silent.
        idle_secs: Option<u64>,
    },
    #[error("workspace {name} belongs to another session (active {idle_secs} s ago)")]
    OwnerActive { name: WorkspaceName, idle_secs: u64 },
    #[error("workspace {name} belongs to another session, which is connected (active {idle_secs} s ago)")]
    OwnerConnected { name: WorkspaceName, idle_secs: u64 },
    #[error("workspace {name} already has {MAX_FORWARDS} port forwards, the most it may have")]
    TooManyForwards { name: WorkspaceName },
    #[error("workspace {name} {refusal}{}", because(*.refusal, .stop_reason))]
    WrongState { name: WorkspaceName, refusal: Refusal, stop_reason: Option<String> },
    #[error("a workspace named {name} exists already")]
    NameTaken { name: WorkspaceName },
    #[error("{}", join(.0))]
    OutOfRange(Vec<OutOfRange>),
    #[error("the limit of {limit} workspaces is reached: there are {used}")]
    TooManyWorkspaces { used: u64, limit: u64 },
    #[error("the limit of {limit} VMs is reached: there are {used}, the warm pool included")]
    TooManyVms { used: u64, limit: u64 },
    #[error(transparent)]
    Quota(#[from] QuotaExceeded),
    #[error(transparent)]
    RateLimited(#[from] RateLimited),
    #[error(transparent)]
    HostMemory(#[from] HostMemoryShort),
    #[error(transparent)]
    NoAddress(#[from] SubnetFull),
    #[error("invalid network policy: {0}")]
    Policy(#[from] PolicyProblems),
    #[error("port {guest_port} of workspace {name} cannot be forwarded: {source}")]
    Forward { name: WorkspaceName, guest_port: u16, source: ForwardError },
    #[error("port {guest_port} of workspace {name} is not forwarded{}", forwarded(.known))]
    NoForward { name: WorkspaceName, guest_port: u16, known: Vec<u16> },
    #[error("agentiso itself uses host port {port}")]
    OwnPort { port: u16 },
    #[error("the host's disk is full: {what}")]
    NoSpace { what: String },
    #[error(transparent)]
    HostSpace(#[from] HostSpaceShort),
    #[error(
        "workspace {name} and its snapshots use {} MB of at most {} MB{}",
        .used_bytes / MIB, .limit_bytes / MIB, of_memory(*.memory_bytes)
    )]
    DiskQuota { name: WorkspaceName, used_bytes: u64, memory_bytes: u64, limit_bytes: u64 },
    #[error("workspace {name} has no snapshot {wanted:?}{}", did_you_mean(.nearest))]
    SnapshotNotFound { name: WorkspaceName, wanted: String, nearest: Option<String>, known: Vec<String> },
    #[error("workspace {name} already has a snapshot {snapshot}")]
    SnapshotNameTaken { name: WorkspaceName, snapshot: SnapshotName },
    #[error("workspace {name} has {limit} snapshots, the most a workspace may have")]
    TooManySnapshots { name: WorkspaceName, limit: u32 },
    #[error("snapshot {snapshot} of workspace {name} is in use by {}", forks_words(.forks))]
    SnapshotInUse { name: WorkspaceName, snapshot: SnapshotName, forks: Vec<String> },
    #[error("{operation} of workspace {name} failed: {source}")]
    Snapshot {
        name: WorkspaceName,
        /// The operation and the snapshot it was for.
        operation: String,
        #[source]
        source: SnapshotFailure,
    },
    #[error(
        "setup command {number} of fork {name} {ended}, so the fork was removed: {command}{}",
        output_tail(.output)
    )]
    SetupFailed {
        name: WorkspaceName,
        /// Counted from 1.
        number: usize,
        command: String,
        /// Its end in words: `ended with 3`, `was killed by signal 9`.
        ended: String,
        /// The end of its output.
        output: String,
    },
    #[error("{} is a relative path, and the daemon runs in another directory", path.display())]
    RelativePath { path: PathBuf },
    #[error("exporting snapshot {snapshot} of workspace {name} failed: {source}")]
    Export {
        name: WorkspaceName,
        snapshot: SnapshotName,
        #[source]
        source: CarryFailure,
    },
    #[error("importing {} failed: {source}", file.display())]
    Import {
        file: PathBuf,
        #[source]
        source: CarryFailure,
    },
    #[error("{}", missing_image(.name, .known))]
    NoImage { name: ImageName, known: Vec<String> },
    #[error("base image {name} cannot be used: {reason}")]
    BrokenImage { name: ImageName, reason: String },
    #[error("workspace {name} did not start: {source}")]
    Boot {
        name: WorkspaceName,
        #[source]
        source: BootFailure,
    },
    #[error("this host cannot run VMs: {reason}")]
    HostUnfit { reason: String },
    #[error("{operation} in workspace {name} failed: {source}")]
    Guest {
        name: WorkspaceName,
        operation: &'static str,
        #[source]
        source: AgentFailure,
    },
    #[error("nothing was transferred to or from workspace {name}: {source}")]
    Transfer {
        name: WorkspaceName,
        #[source]
        source: TransferError,
    },
    #[error("the VM of workspace {name} ended during the call: {reason}")]
    VmDied { name: WorkspaceName, reason: String },
    #[error("workspace {name} could not be destroyed: {source}")]
    Erase {
        name: WorkspaceName,
        #[source]
        source: EraseFailure,
    },
    #[error("the state could not be saved: {0}")]
    Ledger(#[source] LedgerError),
    #[error("too many requests wait for workspace {name}")]
    Busy { name: WorkspaceName },
    #[error("the daemon has restarted and is still reconnecting to workspace {name}")]
    StillAttaching { name: WorkspaceName },
    #[error("workspace {name}: {reason}")]
    OutOfReach { name: WorkspaceName, reason: String },
    #[error("the logs of workspace {name} cannot be read: {source}")]
    Logs {
        name: WorkspaceName,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error(transparent)]
    Swarm(#[from] SwarmError),
    #[error(transparent)]
    McpBridge(#[from] McpBridgeError),
    #[error(transparent)]
    Team(#[from] TeamError),
    #[error(transparent)]
    Quarantine(#[from] QuarantineError),
    #[error("the vault is disabled (vault.enabled = false)")]
    VaultDisabled,
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error(transparent)]
    Board(#[from] BoardError),
    #[error("the call was cancelled and its changes were undone")]
    Cancelled,
    #[error("the daemon is shutting down")]
    ShuttingDown,
}

impl OpError {
    /// The error for a snapshot that was deleted after a request for it was accepted.
    pub(crate) fn snapshot_gone(name: &WorkspaceName, snapshot: &SnapshotId) -> Self {
        let (name, wanted) = (name.clone(), snapshot.to_string());
        Self::SnapshotNotFound { name, wanted, nearest: None, known: Vec::new() }
    }

    /// Converts the failure of a boot, according to its cause.
    pub(crate) fn boot(name: &WorkspaceName, failure: BootFailure) -> Self {
        match failure {
            BootFailure::NoSpace { what } => Self::NoSpace { what },
            BootFailure::HostUnfit { reason } => Self::HostUnfit { reason },
            BootFailure::Unrecorded(Unrecorded(error)) => match error.downcast() {
                Ok(error) => Self::Ledger(*error),
                Err(error) => Self::Boot { name: name.clone(), source: Unrecorded(error).into() },
            },
            BootFailure::Lasting { .. } | BootFailure::Failed { .. } => {
                Self::Boot { name: name.clone(), source: failure }
            }
        }
    }
}

fn forwarded(known: &[u16]) -> String {
    match known {
        [] => "; it has no forwards".to_owned(),
        known => {
            format!("; forwarded ports: {}", known.iter().map(u16::to_string).collect::<Vec<_>>().join(", "))
        }
    }
}

fn of_memory(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        bytes => format!(", and a copy of its memory may need {} MB more", bytes / MIB),
    }
}

fn forks_words(forks: &[String]) -> String {
    let noun = if forks.len() == 1 { "fork" } else { "forks" };
    format!("{} {noun}: {}", forks.len(), forks.join(", "))
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!("; did you mean {name:?}?")).unwrap_or_default()
}

fn owner_words(owner: &Option<SessionId>, idle_secs: Option<u64>) -> String {
    match (owner, idle_secs) {
        (Some(_), Some(idle)) => format!("belongs to another session (active {idle} s ago)"),
        (Some(_), None) => "belongs to a session that has ended".to_owned(),
        (None, _) => "has no owner".to_owned(),
    }
}

fn because(refusal: Refusal, reason: &Option<String>) -> String {
    match (refusal, reason) {
        (_, None) => String::new(),
        (Refusal::Suspended, Some(reason)) => format!(": {reason}"),
        (_, Some(reason)) => format!(" (it stopped because {reason})"),
    }
}

fn output_tail(output: &str) -> String {
    if output.is_empty() { String::new() } else { format!("; output: {output}") }
}

fn missing_image(name: &ImageName, known: &[String]) -> String {
    match known {
        [] => "no base image yet".to_owned(),
        known => format!("there is no base image {name}; available: {}", known.join(", ")),
    }
}

fn join(problems: &[OutOfRange]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_workspace_error_suggests_known_names() {
        let error = OpError::NotFound {
            wanted: "wbe".to_owned(),
            nearest: Some("web".to_owned()),
            known: vec!["web".to_owned(), "db".to_owned()],
        };
        assert_eq!(error.to_string(), "there is no workspace \"wbe\"; did you mean \"web\"?");
    }

    #[test]
    fn error_lists_every_field_out_of_range() {
        let problems = ["vcpus", "disk_gb"].map(|field| OutOfRange { field, value: 0, min: 1, max: 8 });
        let text = OpError::OutOfRange(problems.to_vec()).to_string();
        assert!(text.contains("vcpus") && text.contains("disk_gb"), "{text}");
    }
}

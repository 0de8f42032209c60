//! Errors of operations on workspaces, in words that name the workspace.
//!
//! Code, hint and whether a retry can help are decided here, once; the tools and the command line only add layout.

mod mcp_bridge;
mod quarantine;
mod team;

use std::path::PathBuf;

use agentiso_core::address::SubnetFull;
use agentiso_core::ids::SessionId;
use agentiso_core::lifecycle::Refusal;
use agentiso_core::memory::HostMemoryShort;
use agentiso_core::names::{ImageName, SnapshotName, WorkspaceName};
use agentiso_core::network::PolicyProblems;
use agentiso_core::quota::QuotaExceeded;
use agentiso_core::rate::RateLimited;
use agentiso_core::resources::OutOfRange;
use agentiso_core::space::HostSpaceShort;
use agentiso_host::transfer::TransferError;
use agentiso_net::flow::ForwardError;
use agentiso_vault::VaultError;
use agentiso_vault::board::BoardError;
use thiserror::Error;

use crate::git::GitError;
use crate::info::MAX_FORWARDS;
use crate::ledger::LedgerError;
use crate::registry::TAKEOVER_AFTER;
use crate::session::{PrepareError, SwarmError};
use crate::vms::{AgentFailure, BootFailure, CarryFailure, EraseFailure, SnapshotFailure};

pub use mcp_bridge::McpBridgeError;
pub use quarantine::QuarantineError;
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
    #[error(
        "workspace {name} belongs to another session (active {idle_secs} s ago); force takes it over after 60 s without a call"
    )]
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
        /// How it ended: `ended with 3`, `was killed by signal 9`.
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
    #[error("{what} is not supported")]
    Unsupported { what: String },
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
    /// A stable word that programs can compare.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "workspace_not_found",
            Self::NotOwned { .. } => "not_owned",
            Self::OwnerActive { .. } => "owner_active",
            Self::OwnerConnected { .. } => "owner_connected",
            Self::TooManyForwards { .. } => "too_many_forwards",
            Self::WrongState { .. } => "wrong_state",
            Self::NameTaken { .. } => "name_taken",
            Self::OutOfRange(_) => "out_of_range",
            Self::TooManyWorkspaces { .. } => "too_many_workspaces",
            Self::TooManyVms { .. } => "too_many_machines",
            Self::Quota(_) => "quota_exceeded",
            Self::RateLimited(_) => "rate_limited",
            Self::HostMemory(_) => "host_memory",
            Self::NoAddress(_) => "no_address",
            Self::Policy(_) => "bad_policy",
            Self::Forward { source: ForwardError::InUse { .. }, .. } => "port_in_use",
            Self::Forward { source: ForwardError::Exists { .. }, .. } => "forward_exists",
            Self::Forward { source: ForwardError::NoPort | ForwardError::Privileged { .. }, .. }
            | Self::OwnPort { .. } => "bad_port",
            Self::Forward { .. } => "forward_failed",
            Self::NoForward { .. } => "no_forward",
            Self::NoSpace { .. } | Self::HostSpace(_) => "no_space",
            Self::DiskQuota { .. } => "disk_quota",
            Self::SnapshotNotFound { .. } => "snapshot_not_found",
            Self::SnapshotNameTaken { .. } => "snapshot_exists",
            Self::TooManySnapshots { .. } => "too_many_snapshots",
            Self::SnapshotInUse { .. } => "snapshot_in_use",
            Self::Snapshot { source: SnapshotFailure::NoSpace { .. }, .. } => "no_space",
            Self::Snapshot { source: SnapshotFailure::Failed { .. }, .. } => "snapshot_failed",
            Self::SetupFailed { .. } => "setup_failed",
            Self::RelativePath { .. } => "relative_path",
            Self::Export { source, .. } | Self::Import { source, .. } => match source {
                CarryFailure::NoSpace { .. } => "no_space",
                CarryFailure::Exists { .. } => "file_exists",
                CarryFailure::Unusable { .. } => "bad_file",
                CarryFailure::Failed { .. } => "carry_failed",
            },
            Self::NoImage { .. } => "no_image",
            Self::BrokenImage { .. } => "broken_image",
            Self::Unsupported { .. } => "unsupported",
            Self::Boot { .. } => "boot_failed",
            Self::HostUnfit { .. } => "host_unfit",
            Self::Guest { source: AgentFailure::Refused { code, .. }, .. } => code.as_str(),
            Self::Guest { source: AgentFailure::Unsupported { .. }, .. } => "unsupported",
            Self::Guest { source: AgentFailure::Silent { .. }, .. } => "guest_silent",
            Self::Guest { source: AgentFailure::Broken { .. }, .. } => "guest_unreachable",
            Self::Transfer { source, .. } => transfer_code(source),
            Self::VmDied { .. } => "machine_died",
            Self::Erase { .. } => "destroy_failed",
            Self::Ledger(LedgerError::NoSpace { .. }) => "no_space",
            Self::Ledger(_) => "state_not_saved",
            Self::Busy { .. } => "busy",
            Self::StillAttaching { .. } => "still_attaching",
            Self::OutOfReach { .. } => "guest_unreachable",
            Self::Logs { .. } => "logs_unreadable",
            Self::Git(error) => error.code(),
            Self::Prepare(error) => error.code(),
            Self::Swarm(error) => error.code(),
            Self::McpBridge(error) => error.code(),
            Self::Team(error) => error.code(),
            Self::Quarantine(error) => error.code(),
            Self::VaultDisabled => "vault_disabled",
            Self::Vault(error) => error.code(),
            Self::Board(error) => error.code(),
            Self::Cancelled => "cancelled",
            Self::ShuttingDown => "shutting_down",
        }
    }

    /// Advice for a client of the tools.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::NotFound { known, .. } if known.is_empty() => {
                "there are no workspaces; create one with workspace_create".to_owned()
            }
            Self::NotFound { known, .. } => {
                format!("workspace_list shows all workspaces; there are: {}", known.join(", "))
            }
            Self::NotOwned { idle_secs: None, .. } => {
                "take it over with workspace_adopt, then repeat the call".to_owned()
            }
            Self::NotOwned { idle_secs: Some(idle_secs), .. } => match takeover_in(*idle_secs) {
                0 => "use a workspace of your own, or take it over with workspace_adopt and force: true, then repeat \
                      the call"
                    .to_owned(),
                left => format!(
                    "use a workspace of your own; if that session makes no call for {left} s more, workspace_adopt \
                     with force: true takes it over"
                ),
            },
            Self::OwnerActive { idle_secs, .. } => force_hint(*idle_secs),
            Self::TooManyForwards { .. } => "remove one with port_forward (action remove)".to_owned(),
            Self::OwnerConnected { .. } => {
                "use a workspace of your own; if that session does not need it any more, repeat the call with \
                 force: true"
                    .to_owned()
            }
            Self::WrongState { refusal, .. } => refusal_hint(*refusal).to_owned(),
            Self::NameTaken { .. } => "choose another name, or look at it with workspace_info".to_owned(),
            Self::TooManyWorkspaces { .. } | Self::TooManyVms { .. } | Self::Quota(_) => {
                "destroy workspaces that are no longer needed with workspace_destroy".to_owned()
            }
            Self::RateLimited(_) => {
                "wait that long, and do more with each call: one workspace runs many commands"
                    .to_owned()
            }
            Self::HostMemory(_) => "ask for less memory_mb, or stop or destroy another workspace".to_owned(),
            Self::NoAddress(_) => "destroy workspaces that are no longer needed".to_owned(),
            Self::Policy(_) => "correct the fields named above; the others keep their values".to_owned(),
            Self::Forward { source: ForwardError::Exists { .. }, .. } => {
                "use it as it is, or remove it first with port_forward (action remove)".to_owned()
            }
            Self::Forward { .. } | Self::OwnPort { .. } => {
                "omit host_port to get a free port, or give another one from 1024 on".to_owned()
            }
            Self::NoForward { .. } => "workspace_info shows the ports that are forwarded".to_owned(),
            Self::NoSpace { .. }
            | Self::HostSpace(_)
            | Self::Ledger(_)
            | Self::Snapshot { source: SnapshotFailure::NoSpace { .. }, .. } => {
                "free space on the host's disk, or delete snapshots or workspaces that are no longer needed"
                    .to_owned()
            }
            Self::DiskQuota { .. } | Self::TooManySnapshots { .. } => {
                "delete snapshots that are no longer needed with snapshot (action delete)".to_owned()
            }
            Self::SnapshotNotFound { known, .. } if known.is_empty() => {
                "the workspace has no snapshots; take one with snapshot (action create)".to_owned()
            }
            Self::SnapshotNotFound { known, .. } => {
                format!("snapshot (action list) shows all; there are: {}", known.join(", "))
            }
            Self::SnapshotNameTaken { .. } => "choose another name, or delete that snapshot first".to_owned(),
            Self::SnapshotInUse { .. } => "destroy the forks first with workspace_destroy".to_owned(),
            Self::Snapshot { source: SnapshotFailure::Failed { .. }, .. } => {
                "try again; workspace_logs shows the VM's messages".to_owned()
            }
            Self::SetupFailed { .. } => {
                "correct the command, or fork without it and run it with exec to see its output".to_owned()
            }
            Self::RelativePath { .. } => "give a path that begins with /".to_owned(),
            Self::Export { source, .. } | Self::Import { source, .. } => match source {
                CarryFailure::NoSpace { .. } => "free space on the host's disk".to_owned(),
                CarryFailure::Exists { .. } => "choose another name, or allow replacing it".to_owned(),
                CarryFailure::Unusable { .. } => "export the snapshot again, then copy the new file".to_owned(),
                CarryFailure::Failed { .. } => return None,
            },
            Self::NoImage { known, .. } if known.is_empty() => "run `agentiso init` on the host".to_owned(),
            Self::NoImage { name, .. } => {
                format!("use one of these, or run `agentiso image build {name}` on the host")
            }
            Self::BrokenImage { name, .. } => format!("run `agentiso image build {name} --force` on the host"),
            Self::Unsupported { .. } => "workspaces are always isolated; pass false, or omit the argument".to_owned(),
            Self::Boot { .. } => {
                "try again; workspace_logs shows the console of a workspace that exists".to_owned()
            }
            Self::HostUnfit { .. } => "run `agentiso check` on the host; it names what is missing".to_owned(),
            Self::VmDied { .. } => {
                "workspace_logs shows its last output; workspace_start starts it again".to_owned()
            }
            Self::Erase { .. } => "remove the cause, then try again".to_owned(),
            Self::Busy { .. } | Self::StillAttaching { .. } => "try again in a moment".to_owned(),
            Self::OutOfReach { .. } => {
                "the daemon keeps trying; stopping the workspace kills its VM without asking the guest".to_owned()
            }
            Self::VaultDisabled => {
                "set vault.enabled and vault.path in the configuration on the host".to_owned()
            }
            Self::Vault(error) => return error.hint().map(str::to_owned),
            Self::Board(error) => return error.hint().map(str::to_owned),
            Self::Guest { source: AgentFailure::Silent { .. } | AgentFailure::Broken { .. }, .. } => {
                "look at workspace_logs; workspace_stop and workspace_start restart the VM".to_owned()
            }
            Self::Git(error) => return error.hint(),
            Self::Prepare(error) => error.hint().to_owned(),
            Self::Swarm(error) => error.hint().to_owned(),
            Self::McpBridge(error) => error.hint().to_owned(),
            Self::Team(error) => return error.hint(),
            Self::Quarantine(error) => error.hint().to_owned(),
            Self::Guest { source: AgentFailure::Unsupported { .. }, .. } => {
                "workspace_stop and workspace_start bring the current agent, but end all running processes".to_owned()
            }
            Self::Transfer { source, .. } => return transfer_hint(source),
            Self::OutOfRange(_)
            | Self::Guest { source: AgentFailure::Refused { .. }, .. }
            | Self::Logs { .. }
            | Self::Cancelled
            | Self::ShuttingDown => return None,
        };
        Some(text)
    }

    /// The same for a shell user.
    pub fn shell_hint(&self) -> Option<String> {
        let text = match self {
            Self::NotFound { .. } => "`agentiso ps` shows all workspaces".to_owned(),
            Self::WrongState { refusal: Refusal::NotRunning, name, .. } => format!("`agentiso start {name}`"),
            Self::WrongState { refusal: Refusal::AlreadyRunning, name, .. } => {
                format!("use it as it is, or `agentiso stop {name}` first")
            }
            Self::NameTaken { name } => format!("choose another name, or `agentiso rm {name}` first"),
            Self::TooManyWorkspaces { .. } | Self::TooManyVms { .. } => {
                "`agentiso rm` workspaces that are no longer needed".to_owned()
            }
            Self::VmDied { name, .. } => {
                format!(
                    "`agentiso logs {name}` shows its last output; `agentiso start {name}` starts it again"
                )
            }
            Self::Boot { .. } => {
                "`agentiso check` shows what this host lacks; the daemon's log has the details".to_owned()
            }
            Self::SnapshotNotFound { name, .. } => format!("`agentiso snapshot ls {name}` shows all"),
            Self::DiskQuota { name, .. } | Self::TooManySnapshots { name, .. } => {
                format!("delete snapshots that are no longer needed: `agentiso snapshot rm {name} SNAPSHOT`")
            }
            Self::SnapshotNameTaken { name, snapshot } => {
                format!("choose another name, or `agentiso snapshot rm {name} {snapshot}` first")
            }
            Self::SnapshotInUse { forks, .. } => format!("`agentiso rm {}` first", forks.join(" ")),
            Self::Snapshot { source: SnapshotFailure::Failed { .. }, name, .. } => {
                format!("try again; `agentiso logs {name}` shows the VM's messages")
            }
            Self::SetupFailed { .. } => {
                "correct the command, or fork without it and run it with `agentiso exec` to see its output"
                    .to_owned()
            }
            Self::Export { source: CarryFailure::Exists { .. }, .. } => {
                "choose another name, or replace it with --force".to_owned()
            }
            Self::NotOwned { .. }
            | Self::OwnerActive { .. }
            | Self::OwnerConnected { .. }
            | Self::TooManyForwards { .. }
            | Self::WrongState { .. }
            | Self::RelativePath { .. }
            | Self::Export { .. }
            | Self::Import { .. }
            | Self::OutOfRange(_)
            | Self::Quota(_)
            | Self::RateLimited(_)
            | Self::HostMemory(_)
            | Self::NoAddress(_)
            | Self::Policy(_)
            | Self::Forward { .. }
            | Self::NoForward { .. }
            | Self::OwnPort { .. }
            | Self::NoSpace { .. }
            | Self::HostSpace(_)
            | Self::Snapshot { source: SnapshotFailure::NoSpace { .. }, .. }
            | Self::NoImage { .. }
            | Self::BrokenImage { .. }
            | Self::Unsupported { .. }
            | Self::HostUnfit { .. }
            | Self::Guest { .. }
            | Self::Transfer { .. }
            | Self::Erase { .. }
            | Self::Ledger(_)
            | Self::Busy { .. }
            | Self::StillAttaching { .. }
            | Self::OutOfReach { .. }
            | Self::Logs { .. }
            | Self::Git(_)
            | Self::Prepare(_)
            | Self::Swarm(_)
            | Self::McpBridge(_)
            | Self::Team(_)
            | Self::Quarantine(_)
            | Self::VaultDisabled
            | Self::Vault(_)
            | Self::Board(_)
            | Self::Cancelled
            | Self::ShuttingDown => return self.hint(),
        };
        Some(text)
    }

    /// Whether the same call may succeed later although nothing is changed by a person.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Git(error) => error.retryable(),
            Self::Prepare(error) => error.retryable(),
            Self::Team(error) => error.retryable(),
            Self::OwnerActive { .. }
            | Self::RateLimited(_)
            | Self::HostMemory(_)
            | Self::Boot { .. }
            | Self::Busy { .. }
            | Self::StillAttaching { .. }
            | Self::OutOfReach { .. }
            | Self::Snapshot { source: SnapshotFailure::Failed { .. }, .. }
            | Self::Guest { source: AgentFailure::Silent { .. } | AgentFailure::Broken { .. }, .. } => true,
            Self::Vault(error) => error.retryable(),
            Self::Board(error) => error.retryable(),
            Self::WrongState { refusal, .. } => match refusal {
                Refusal::BeingCreated
                | Refusal::BeingStarted
                | Refusal::BeingStopped
                | Refusal::BeingRestored
                | Refusal::Suspended => true,
                Refusal::NotRunning | Refusal::AlreadyRunning | Refusal::BeingDestroyed => false,
            },
            Self::NotFound { .. }
            | Self::NotOwned { .. }
            | Self::OwnerConnected { .. }
            | Self::TooManyForwards { .. }
            | Self::NameTaken { .. }
            | Self::OutOfRange(_)
            | Self::TooManyWorkspaces { .. }
            | Self::TooManyVms { .. }
            | Self::Quota(_)
            | Self::NoAddress(_)
            | Self::Policy(_)
            | Self::Forward { .. }
            | Self::NoForward { .. }
            | Self::OwnPort { .. }
            | Self::NoSpace { .. }
            | Self::HostSpace(_)
            | Self::DiskQuota { .. }
            | Self::SnapshotNotFound { .. }
            | Self::SnapshotNameTaken { .. }
            | Self::TooManySnapshots { .. }
            | Self::SnapshotInUse { .. }
            | Self::Snapshot { source: SnapshotFailure::NoSpace { .. }, .. }
            | Self::RelativePath { .. }
            | Self::Export { .. }
            | Self::Import { .. }
            | Self::SetupFailed { .. }
            | Self::NoImage { .. }
            | Self::BrokenImage { .. }
            | Self::Unsupported { .. }
            | Self::HostUnfit { .. }
            | Self::Guest {
                source: AgentFailure::Refused { .. } | AgentFailure::Unsupported { .. }, ..
            }
            | Self::Transfer { .. }
            | Self::VmDied { .. }
            | Self::Erase { .. }
            | Self::Ledger(_)
            | Self::Logs { .. }
            | Self::Swarm(_)
            | Self::McpBridge(_)
            | Self::Quarantine(_)
            | Self::VaultDisabled
            | Self::Cancelled
            | Self::ShuttingDown => false,
        }
    }

    /// Converts the failure of a boot, according to its cause.
    pub(crate) fn boot(name: &WorkspaceName, failure: BootFailure) -> Self {
        match failure {
            BootFailure::NoSpace { what } => Self::NoSpace { what },
            BootFailure::HostUnfit { reason } => Self::HostUnfit { reason },
            BootFailure::Ledger(error) => Self::Ledger(error),
            BootFailure::TimedOut { .. } | BootFailure::Failed { .. } => {
                Self::Boot { name: name.clone(), source: failure }
            }
        }
    }
}

fn transfer_code(error: &TransferError) -> &'static str {
    match error {
        error if error.is_out_of_space() => "no_space",
        TransferError::Outside { .. } => "outside_transfer_dir",
        TransferError::Link { .. } => "is_link",
        TransferError::Missing { .. } | TransferError::NoParent { .. } => "host_path_not_found",
        TransferError::Special { .. } => "not_regular",
        TransferError::Exists { .. } => "file_exists",
        TransferError::BadName { .. } => "bad_path",
        TransferError::Tree { .. } | TransferError::Io { .. } => "transfer_failed",
    }
}

fn transfer_hint(error: &TransferError) -> Option<String> {
    let text = match error {
        error if error.is_out_of_space() => "free space on the host's disk",
        TransferError::Outside { .. } | TransferError::BadName { .. } => {
            "give a path relative to the transfer directory; [server] transfer_dir says where that is"
        }
        TransferError::Link { .. } => {
            "give the path without links, if the target is inside the transfer directory"
        }
        TransferError::Missing { .. } => "put the file into the transfer directory of the host first",
        TransferError::NoParent { .. } => "choose a path in a directory that exists",
        TransferError::Exists { .. } => "choose a path that does not exist yet, or an empty directory",
        TransferError::Special { .. } | TransferError::Tree { .. } | TransferError::Io { .. } => return None,
    };
    Some(text.to_owned())
}

fn refusal_hint(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::NotRunning => "start it with workspace_start",
        Refusal::AlreadyRunning => "use it as it is, or stop it first with workspace_stop",
        Refusal::BeingCreated | Refusal::BeingStarted | Refusal::BeingStopped | Refusal::BeingRestored => {
            "try again in a moment; workspace_info shows its state"
        }
        Refusal::Suspended => {
            "free space on the host's disk or delete snapshots; the workspace then resumes by itself"
        }
        Refusal::BeingDestroyed => "create another with workspace_create",
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

/// The seconds that an owner must stay silent before force helps.
fn takeover_in(idle_secs: u64) -> u64 {
    TAKEOVER_AFTER.as_secs().saturating_sub(idle_secs)
}

fn force_hint(idle_secs: u64) -> String {
    let left = takeover_in(idle_secs);
    format!(
        "use a workspace of your own; if that session makes no call for {left} s more, force: true takes it over"
    )
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
        assert!(error.hint().unwrap().contains("web, db"));
    }

    #[test]
    fn hint_names_force_only_when_it_helps() {
        let hint = |idle_secs| {
            let name = WorkspaceName::parse("web").unwrap();
            OpError::NotOwned { name, owner: None, idle_secs }.hint().unwrap()
        };
        assert!(!hint(None).contains("force"), "{}", hint(None));
        assert!(hint(Some(20)).contains("40 s more"), "{}", hint(Some(20)));
        assert!(hint(Some(60)).contains("or take it over"), "{}", hint(Some(60)));
    }

    #[test]
    fn missing_image_hint_names_the_build_command() {
        let error = OpError::NoImage { name: ImageName::parse("debian-dev").unwrap(), known: Vec::new() };
        assert_eq!(error.to_string(), "no base image yet");
        assert!(error.hint().unwrap().contains("agentiso init"));
        assert_eq!(error.code(), "no_image");
    }

    #[test]
    fn error_lists_every_field_out_of_range() {
        let problems = ["vcpus", "disk_gb"].map(|field| OutOfRange { field, value: 0, min: 1, max: 8 });
        let text = OpError::OutOfRange(problems.to_vec()).to_string();
        assert!(text.contains("vcpus") && text.contains("disk_gb"), "{text}");
    }
}

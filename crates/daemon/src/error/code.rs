//! The codes of errors, and whether a retry can help.

use agentiso_core::lifecycle::Refusal;
use agentiso_net::flow::ForwardError;
use agentiso_sys::transfer::TransferError;

use super::OpError;
use crate::ledger::LedgerError;
use crate::vms::{AgentFailure, BootFailure, CarryFailure, SnapshotFailure};

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

    /// Whether the same call may succeed later although nothing is changed by a person.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Git(error) => error.retryable(),
            Self::Prepare(error) => error.retryable(),
            Self::Team(error) => error.retryable(),
            Self::OwnerActive { .. }
            | Self::RateLimited(_)
            | Self::HostMemory(_)
            | Self::Boot { source: BootFailure::Failed { .. }, .. }
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
            | Self::HostUnfit { .. }
            | Self::Boot { .. }
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

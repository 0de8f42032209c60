//! The daemon of agentiso: it runs one task per workspace, knows who owns each, and remembers them across restarts.
//!
//! ```text
//!  socket ─▶ Session ─▶ Registry (names, addresses, quota, ownership; one lock, no I/O)
//!                 │           │
//!                 │           └─▶ Ledger (state.json)
//!                 └─▶ Runner, one task per workspace ─▶ VMs (QEMU through agentiso-host)
//! ```
//!
//! [`Daemon`] is opened on a configuration. A [`Session`] offers the calls of one connection, and a [`Guest`] those
//! on the inside of a running workspace.

mod claims;
pub mod control;
mod daemon;
mod error;
pub mod fault;
mod first_turn;
mod found_daemon;
mod handle;
mod info;
mod inside;
pub mod ledger;
mod lock;
mod logs;
pub mod mail;
mod main_loop;
mod mcp;
mod mcp_bridge;
mod metrics;
mod network;
mod open_files;
mod own_log;
mod pool;
mod qemu_vms;
mod quarantined;
mod refill;
mod registry;
mod run_dir;
mod runner;
mod session;
mod shared;
mod space;
mod standstill;
mod startup;
mod sweep;
mod templates;
mod vm_spec;

/// The vocabulary of VMs and their guests.
pub use agentiso_vm as vms;
pub use qemu_vms::QemuVms;

pub use agentiso_net::bridge::{LogLack, try_flow_log};
pub use agentiso_net::flow::ForwardError;
pub use agentiso_net::flow::log::{FlowEvent, FlowRecord};
/// The jail that confines the QEMU process of a workspace, found by its process id.
pub use agentiso_sys::jail::of_process as jail_of;
pub use agentiso_sys::transfer::TransferError;
pub use daemon::{Daemon, OpenError};
pub use error::{GitError, McpBridgeError, OpError, PrepareError, QuarantineError, SwarmError, TeamError};
pub use found_daemon::{FoundDaemon, find_daemon};
pub use info::{
    Adopted, BatchForked, BulkAdopted, CreateRequest, Created, ExportRequest, Exported, ForkFailed,
    ForkManyRequest, ForkRequest, Forked, ForkedFrom, ImportRequest, Imported, LogKind, Logs, MAX_FORKS,
    NetworkInfo, NetworkTrouble, PortForward, Restored, SnapshotInfo, SnapshotMade, WorkspaceInfo,
};
pub use lock::{InstanceLock, LockError, running_daemon};
pub use main_loop::{RunError, run, run_with};
pub use mcp::{McpHandler, McpOptions};
pub use metrics::{Health, Workspaces};
pub use network::NetworkError;
pub use registry::{SessionKind, TAKEOVER_AFTER};
pub use run_dir::{Owner, RunDirError, others_vms, share_directory};
pub use session::{
    BridgeAccess, ExecStream, Guest, MemberInfo, MergeRequest, Merged, MergedSource, PrepareRequest,
    Prepared, QuarantineItem, QuarantineKind, Received, Recovered, RoleRequest, Sent, Session, SwarmDone,
    SwarmMerge, SwarmMerged, SwarmRequest, SwarmTask, TaskDone, TaskOutcome, TeamInfo, TeamRequest,
    Transferred, VaultQuery, VaultQueryKind, Watch,
};
pub use vms::{
    AgentFailure, Captured, ChangedPath, ChangedPaths, Command, DirEntry, DirListing, EntryKind, ExecEvent,
    ExecOrJob, ExecOutcome, ExecSpec, FileContent, GuestCode, HostFacts, JobQuery, JobState, JobSummary,
    ListOptions, OutputStream, Progress, Rung, SnapshotDiff, TemplateInfo, WriteFile,
};

//! The requests of clients and the answers they get about workspaces: plain values without handles.

mod carry;
mod snapshots;
mod trouble;

use std::net::Ipv4Addr;

use agentiso_core::ids::{SessionId, WorkspaceId};
use agentiso_core::lifecycle::{Phase, PublicState};
use agentiso_core::names::{ImageName, WorkspaceName};
use agentiso_core::network::{NetworkPolicy, PolicyChange};
use agentiso_core::resources::Resources;
use agentiso_core::team::TeamName;
use serde::{Deserialize, Serialize};

use crate::vms::Rung;

pub use carry::{ExportRequest, Exported, ImportRequest, Imported};
pub use snapshots::{
    BatchForked, ForkFailed, ForkManyRequest, ForkRequest, Forked, ForkedFrom, MAX_FORKS, Restored,
    SnapshotInfo, SnapshotMade,
};
pub use trouble::NetworkTrouble;

/// A request to create a workspace. Fields that are `None` come from the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateRequest {
    pub name: Option<WorkspaceName>,
    pub base_image: Option<ImageName>,
    pub vcpus: Option<u32>,
    pub memory_mb: Option<u32>,
    pub disk_gb: Option<u32>,
    /// The difference from the configured policy.
    pub network: PolicyChange,
}

#[derive(Clone, Debug)]
pub struct Created {
    pub info: WorkspaceInfo,
    /// The time from the call until the guest answered under its own identity.
    pub boot_time_ms: u64,
    pub from_pool: bool,
}

#[derive(Clone, Debug)]
pub struct Adopted {
    pub info: WorkspaceInfo,
    pub forced: bool,
}

#[derive(Clone, Debug, Default)]
pub struct BulkAdopted {
    pub adopted: Vec<WorkspaceInfo>,
    pub errors: Vec<(WorkspaceId, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceInfo {
    pub id: WorkspaceId,
    pub name: WorkspaceName,
    pub state: PublicState,
    pub phase: Phase,
    pub base_image: ImageName,
    pub ip: Ipv4Addr,
    pub resources: Resources,
    /// Whether the session that asked owns it.
    pub owned: bool,
    pub owner: Option<SessionId>,
    pub network: NetworkInfo,
    /// The parts of its network that are missing although they should exist.
    pub network_trouble: NetworkTrouble,
    /// The oldest first; their sizes are only filled in by calls that look at the disk.
    pub snapshots: Vec<SnapshotInfo>,
    /// The source of its disk, if it is a fork. The source may be gone.
    pub forked_from: Option<ForkedFrom>,
    /// The team that it is a member of.
    pub team: Option<TeamName>,
    pub created_at: jiff::Timestamp,
    /// Only filled in by `info`, which looks at the disk.
    pub disk_used_bytes: Option<u64>,
    pub disk_volsize_bytes: Option<u64>,
    /// The reason why it is stopped or stands still, unless a client asked for it.
    pub stop_reason: Option<String>,
    pub pid: Option<i32>,
    /// The rung of the boot ladder on which its VM last came up.
    pub rung: Option<Rung>,
}

/// An id and an address, which no two VMs share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VmIdentity {
    pub(crate) id: WorkspaceId,
    pub(crate) address: Ipv4Addr,
}

/// The network policy of a workspace, and the ports of the host that are forwarded to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredNetwork", into = "StoredNetwork")]
pub struct NetworkInfo {
    pub policy: NetworkPolicy,
    pub port_forwards: Vec<PortForward>,
}

/// The stored form: the policy's fields beside the forwards.
#[derive(Serialize, Deserialize)]
struct StoredNetwork {
    #[serde(default)]
    port_forwards: Vec<PortForward>,
    #[serde(flatten)]
    policy: serde_json::Map<String, serde_json::Value>,
}

impl From<StoredNetwork> for NetworkInfo {
    fn from(stored: StoredNetwork) -> Self {
        let policy = serde_json::from_value(stored.policy.into()).unwrap_or_else(|error| {
            // Guessing the meaning of a rule could open what was meant to be closed.
            tracing::error!(%error, "cannot read the network policy of a workspace; nothing is allowed");
            NetworkPolicy::default()
        });
        Self { policy, port_forwards: stored.port_forwards }
    }
}

impl From<NetworkInfo> for StoredNetwork {
    fn from(info: NetworkInfo) -> Self {
        let policy = match serde_json::to_value(info.policy) {
            Ok(serde_json::Value::Object(fields)) => fields,
            Ok(_) | Err(_) => serde_json::Map::new(),
        };
        Self { port_forwards: info.port_forwards, policy }
    }
}

/// The most ports that are forwarded to one workspace. Each is a listening socket and a line of the ledger.
pub(crate) const MAX_FORWARDS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortForward {
    pub host_port: u16,
    pub guest_port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogKind {
    Console,
    Stderr,
    /// The flows that its VM opened and those that were refused.
    Network,
    All,
}

/// The last lines of a VM's logs; `None` for those not asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logs {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub console: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
}

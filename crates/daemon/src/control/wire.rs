//! The messages between the command line and the daemon, one JSON object per line.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use agentiso_core::ids::{SessionId, SnapshotId, WorkspaceId};
use agentiso_core::lifecycle::{Phase, PublicState};
use agentiso_core::network::PolicyChange;
use agentiso_core::resources::Resources;
use agentiso_net::flow::log::FlowRecord;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::jobs::JobParams;
use super::swarm::{SwarmParams, SwarmTaskResult};
use crate::info::{
    ForkFailed, ForkedFrom, LogKind, NetworkInfo, NetworkTrouble, SnapshotInfo, WorkspaceInfo,
};
use crate::vms::{self, Rung};

/// Address and token with which programs inside a workspace reach MCP.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgeResult {
    pub url: String,
    pub token: String,
}

impl fmt::Debug for BridgeResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BridgeResult").field("url", &self.url).finish_non_exhaustive()
    }
}

/// A line from the client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub id: u64,
    #[serde(flatten)]
    pub op: Op,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Op {
    Ping,
    /// The facts about the host, and the numbers of workspaces and running VMs.
    Status,
    /// The metrics as OpenMetrics text.
    Metrics,
    Health,
    Overview,
    Ps {
        #[serde(default)]
        state: Option<PublicState>,
    },
    Create(CreateParams),
    Exec(ExecParams),
    /// Starts a command that goes on after its call was answered.
    StartJob(ExecParams),
    Jobs {
        workspace: String,
    },
    PollJob(JobParams),
    KillJob {
        workspace: String,
        job_id: u64,
        signal: i32,
    },
    Rm {
        workspace: String,
    },
    Stop {
        workspace: String,
    },
    Start {
        workspace: String,
    },
    Info {
        workspace: String,
    },
    Logs {
        workspace: String,
        kind: LogKind,
        max_lines: usize,
    },
    Snapshot {
        workspace: String,
        snapshot: String,
        #[serde(default)]
        include_memory: bool,
    },
    /// Lists the snapshots with their sizes.
    Snapshots {
        workspace: String,
    },
    Restore {
        workspace: String,
        snapshot: String,
    },
    DeleteSnapshot {
        workspace: String,
        snapshot: String,
    },
    DiffSnapshot {
        workspace: String,
        snapshot: String,
    },
    /// Runs tasks in forks, which are destroyed at the end, even if the client disconnects. The result of each task is
    /// an event.
    Swarm(SwarmParams),
    Fork(ForkParams),
    ForkMany(ForkManyParams),
    ExportSnapshot(ExportParams),
    ImportSnapshot(ImportParams),
    /// Changes the policy of a workspace. An empty change only shows it.
    Policy {
        workspace: String,
        #[serde(default)]
        change: PolicyChange,
    },
    Forward {
        workspace: String,
        guest_port: u16,
        #[serde(default)]
        host_port: Option<u16>,
    },
    /// Makes a new token for programs inside the workspace.
    GrantBridge {
        workspace: String,
    },
    RevokeBridge {
        workspace: String,
    },
    EndForward {
        workspace: String,
        guest_port: u16,
    },
    /// The flows that a workspace opened or was refused, as events; with `follow` until the client disconnects.
    NetLog {
        workspace: String,
        max_lines: usize,
        #[serde(default)]
        follow: bool,
    },
    Templates,
    /// Lists the workspaces that would be lost with an image.
    ImageRmCheck {
        image: String,
    },
    /// Lists the items in quarantine.
    Quarantine,
    /// Recovers an item from quarantine.
    Recover {
        wanted: String,
    },
    /// Deletes an item in quarantine.
    Discard {
        wanted: String,
    },
    /// Stops all VMs and ends the daemon; the connection closes when that is done.
    Shutdown,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateParams {
    pub name: Option<String>,
    pub base_image: Option<String>,
    pub vcpus: Option<u32>,
    pub memory_mb: Option<u32>,
    pub disk_gb: Option<u32>,
    #[serde(default)]
    pub network: PolicyChange,
}

#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExecParams {
    pub workspace: String,
    pub command: String,
    pub workdir: Option<String>,
    pub env: BTreeMap<String, String>,
    pub timeout_ms: Option<u64>,
    /// Bytes kept of the beginning and the end of each stream for the result.
    pub head_bytes: u64,
    pub tail_bytes: u64,
    /// Whether output comes as events while the command runs.
    pub stream: bool,
}

/// Omits the values of variables, which may be secrets.
impl fmt::Debug for ExecParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecParams")
            .field("workspace", &self.workspace)
            .field("command", &self.command)
            .field("workdir", &self.workdir)
            .field("env", &self.env.keys())
            .field("timeout_ms", &self.timeout_ms)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ForkParams {
    pub workspace: String,
    pub snapshot: String,
    pub name: Option<String>,
    pub setup_commands: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ForkManyParams {
    pub workspace: String,
    pub snapshot: String,
    pub count: u32,
    pub name_prefix: String,
    pub setup_commands: Vec<String>,
}

/// The file is on the daemon's host; its path is absolute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExportParams {
    pub workspace: String,
    pub snapshot: String,
    pub file: String,
    pub replace: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImportParams {
    pub file: String,
    pub name: Option<String>,
    pub disk_only: bool,
}

/// A line from the daemon. Events come before the one result or error of their request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Reply {
    Event {
        id: u64,
        event: Event,
    },
    Result {
        id: u64,
        result: serde_json::Value,
    },
    /// Has no id if the request could not be parsed.
    Error {
        id: Option<u64>,
        error: WireError,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    Progress {
        step: String,
        #[serde(default)]
        fraction: Option<f32>,
    },
    Started {
        pid: u32,
    },
    Output {
        stream: Stream,
        data: Blob,
    },
    /// A task of a swarm has ended.
    TaskDone(Box<SwarmTaskResult>),
    Flow(FlowRecord),
    /// The number of flow records that were lost because the client reads slowly.
    FlowsLost {
        count: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    Stdout,
    Stderr,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct WireError {
    pub code: String,
    pub message: String,
    #[serde(default)]
    pub hint: Option<String>,
    #[serde(default)]
    pub retryable: bool,
}

impl WireError {
    pub(crate) fn invalid(message: impl ToString) -> Self {
        Self {
            code: "invalid_argument".to_owned(),
            message: message.to_string(),
            hint: None,
            retryable: false,
        }
    }

    /// An error inside the daemon, which no other request would avoid.
    pub(crate) fn internal(message: impl ToString) -> Self {
        Self { code: "internal".to_owned(), message: message.to_string(), hint: None, retryable: false }
    }
}

/// Bytes, encoded as base64 in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blob(pub Vec<u8>);

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(Self).map_err(serde::de::Error::custom)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workspace {
    pub id: WorkspaceId,
    pub name: String,
    pub state: PublicState,
    pub phase: Phase,
    pub base_image: String,
    pub ip: Ipv4Addr,
    pub resources: Resources,
    pub owner: Option<SessionId>,
    pub network: NetworkInfo,
    #[serde(default)]
    pub network_trouble: NetworkTrouble,
    pub created_at: jiff::Timestamp,
    pub disk_used_bytes: Option<u64>,
    pub disk_volsize_bytes: Option<u64>,
    pub stop_reason: Option<String>,
    pub pid: Option<i32>,
    pub rung: Option<Rung>,
    #[serde(default)]
    pub snapshots: Vec<Snapshot>,
    #[serde(default)]
    pub forked_from: Option<ForkedFrom>,
}

impl From<WorkspaceInfo> for Workspace {
    fn from(info: WorkspaceInfo) -> Self {
        Self {
            id: info.id,
            name: info.name.into(),
            state: info.state,
            phase: info.phase,
            base_image: info.base_image.into(),
            ip: info.ip,
            resources: info.resources,
            owner: info.owner,
            network: info.network,
            network_trouble: info.network_trouble,
            created_at: info.created_at,
            disk_used_bytes: info.disk_used_bytes,
            disk_volsize_bytes: info.disk_volsize_bytes,
            stop_reason: info.stop_reason,
            pid: info.pid,
            rung: info.rung,
            snapshots: info.snapshots.into_iter().map(Snapshot::from).collect(),
            forked_from: info.forked_from,
        }
    }
}

/// The sizes are set if the request read the disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    pub id: SnapshotId,
    pub name: String,
    pub has_memory: bool,
    pub parent: Option<String>,
    pub created_at: jiff::Timestamp,
    pub used_bytes: Option<u64>,
    pub referenced_bytes: Option<u64>,
    pub current: bool,
    pub forks: Vec<String>,
}

impl From<SnapshotInfo> for Snapshot {
    fn from(info: SnapshotInfo) -> Self {
        Self {
            id: info.id,
            name: info.name.into(),
            has_memory: info.has_memory,
            parent: info.parent.map(String::from),
            created_at: info.created_at,
            used_bytes: info.used_bytes,
            referenced_bytes: info.referenced_bytes,
            current: info.current,
            forks: info.forks,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SnapshotResult {
    pub workspace: Workspace,
    pub snapshot: Snapshot,
    /// The time that the guest was paused.
    pub pause_us: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RestoreResult {
    pub workspace: Workspace,
    pub snapshot: Snapshot,
    pub rung: Rung,
    #[serde(default)]
    pub warning: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForkResult {
    pub workspace: Workspace,
    pub boot_time_ms: u64,
    #[serde(default)]
    pub warning: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForkManyResult {
    pub workers: Vec<Workspace>,
    pub failures: Vec<ForkFailed>,
    #[serde(default)]
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportResult {
    pub file: String,
    pub file_bytes: u64,
    pub content_bytes: u64,
    pub has_memory: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImportResult {
    pub workspace: Workspace,
    pub snapshot: Snapshot,
    pub boot_time_ms: u64,
    #[serde(default)]
    pub warning: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CreateResult {
    pub workspace: Workspace,
    pub boot_time_ms: u64,
    pub from_pool: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecResult {
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub timed_out: bool,
    pub duration_us: u64,
    pub stdout: Captured,
    pub stderr: Captured,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Captured {
    pub head: Blob,
    pub tail: Blob,
    pub total_bytes: u64,
}

impl From<vms::Captured> for Captured {
    fn from(kept: vms::Captured) -> Self {
        Self { head: Blob(kept.head.into()), tail: Blob(kept.tail.into()), total_bytes: kept.total_bytes }
    }
}

impl From<vms::ExecOutcome> for ExecResult {
    fn from(outcome: vms::ExecOutcome) -> Self {
        Self {
            exit_code: outcome.exit_code,
            signal: outcome.signal,
            timed_out: outcome.timed_out,
            duration_us: u64::try_from(outcome.duration.as_micros()).unwrap_or(u64::MAX),
            stdout: outcome.stdout.into(),
            stderr: outcome.stderr.into(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusResult {
    pub version: String,
    pub pid: u32,
    /// The reason why VMs cannot be run, if they cannot.
    #[serde(default)]
    pub host_problem: Option<String>,
    #[serde(default)]
    pub host: Option<vms::HostFacts>,
    pub workspaces: usize,
    pub running: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_wire_format_is_fixed() {
        let request = Request { id: 3, op: Op::Rm { workspace: "web".to_owned() } };
        assert_eq!(serde_json::to_string(&request).unwrap(), r#"{"id":3,"op":"rm","workspace":"web"}"#);
        let create: Request = serde_json::from_str(r#"{"id":1,"op":"create","vcpus":2}"#).unwrap();
        assert!(matches!(create.op, Op::Create(CreateParams { vcpus: Some(2), name: None, .. })));
        let output =
            Reply::Event { id: 1, event: Event::Output { stream: Stream::Stdout, data: Blob(vec![0, 255]) } };
        let text = serde_json::to_string(&output).unwrap();
        assert_eq!(text, r#"{"id":1,"event":{"type":"output","stream":"stdout","data":"AP8="}}"#);
        assert_eq!(serde_json::from_str::<Reply>(&text).unwrap(), output);
    }

    #[test]
    fn results_and_errors_parse_as_different_replies() {
        let result: Reply = serde_json::from_str(r#"{"id":1,"result":null}"#).unwrap();
        assert!(matches!(result, Reply::Result { id: 1, .. }));
        let error: Reply = serde_json::from_str(r#"{"id":null,"error":{"code":"x","message":"y"}}"#).unwrap();
        assert!(matches!(error, Reply::Error { id: None, .. }));
    }
}

//! Requests and answers about swarms on a control connection.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use agentiso_core::env;
use agentiso_core::ids::WorkspaceId;
use agentiso_core::names::{NamePrefix, SnapshotName, TaskName, WorkspaceRef};
use agentiso_core::paths::GuestPath;
use serde::{Deserialize, Serialize};

use super::failure::RequestError;
use super::wire::{Blob, Captured, WireError};
use crate::session::{Session, SwarmRequest, SwarmTask, TaskDone, TaskOutcome, VaultQuery};
use crate::vms::Progress;

#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwarmParams {
    pub golden: String,
    pub snapshot: String,
    pub name_prefix: Option<String>,
    pub tasks: Vec<SwarmTaskParams>,
    pub env: BTreeMap<String, String>,
    pub max_parallel: u64,
    pub timeout_secs: u64,
    pub mcp_bridge: bool,
}

/// Omits the values of variables, which may be secrets.
impl fmt::Debug for SwarmParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwarmParams")
            .field("golden", &self.golden)
            .field("snapshot", &self.snapshot)
            .field("tasks", &self.tasks)
            .field("env", &self.env.keys())
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwarmTaskParams {
    pub name: String,
    pub command: String,
    pub workdir: Option<String>,
    pub vault_context: Vec<VaultQuery>,
}

/// The result of a task. Each is sent as an event of its own: all together may not fit in one line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SwarmTaskResult {
    pub name: String,
    /// Workspace of its worker, if it was forked.
    pub workspace_id: Option<WorkspaceId>,
    pub success: bool,
    pub exit_code: i32,
    pub timed_out: bool,
    pub stdout: Captured,
    /// The error output, or the reason why the task was not run to its end.
    pub stderr: Captured,
    pub elapsed_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwarmResult {
    pub swarm_id: String,
    pub workers_destroyed: usize,
}

impl From<TaskDone> for SwarmTaskResult {
    fn from(task: TaskDone) -> Self {
        let (success, exit_code) = (task.succeeded(), task.exit_code());
        let (stdout, stderr, timed_out) = match task.outcome {
            TaskOutcome::Ran(outcome) => (outcome.stdout.into(), outcome.stderr.into(), outcome.timed_out),
            TaskOutcome::Failed { reason } => (Captured::default(), whole(reason), false),
        };
        Self {
            name: task.name.into(),
            workspace_id: task.workspace,
            success,
            exit_code,
            timed_out,
            stdout,
            stderr,
            elapsed_ms: u64::try_from(task.elapsed.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

fn whole(text: String) -> Captured {
    Captured { total_bytes: text.len() as u64, head: Blob(text.into_bytes()), tail: Blob::default() }
}

/// Runs a swarm. Returns the result of each task, in the order of the request, and of the whole swarm.
pub(super) async fn run(
    session: &Session,
    params: SwarmParams,
    progress: &Progress,
) -> Result<(Vec<SwarmTaskResult>, SwarmResult), RequestError> {
    let done = session.swarm(request(params)?, progress).await?;
    let tasks = done.tasks.into_iter().map(SwarmTaskResult::from).collect();
    Ok((tasks, SwarmResult { swarm_id: done.swarm_id, workers_destroyed: done.workers_destroyed }))
}

fn request(params: SwarmParams) -> Result<SwarmRequest, WireError> {
    let variables = params.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    env::check(variables).map_err(WireError::invalid)?;
    let prefix = params.name_prefix.as_deref().map(NamePrefix::parse).transpose();
    Ok(SwarmRequest {
        golden: WorkspaceRef::parse(&params.golden),
        snapshot: SnapshotName::parse(&params.snapshot).map_err(WireError::invalid)?,
        name_prefix: prefix.map_err(WireError::invalid)?,
        tasks: params.tasks.into_iter().map(task).collect::<Result<_, _>>()?,
        env: params.env,
        merge: None,
        max_parallel: usize::try_from(params.max_parallel).unwrap_or(usize::MAX),
        timeout: Duration::from_secs(params.timeout_secs),
        cleanup: true,
        allow_internet: None,
        shared_context: None,
        vault_queries: Vec::new(),
        mcp_bridge: params.mcp_bridge,
    })
}

fn task(params: SwarmTaskParams) -> Result<SwarmTask, WireError> {
    let workdir = params.workdir.as_deref().map(GuestPath::parse).transpose();
    Ok(SwarmTask {
        name: TaskName::parse(&params.name).map_err(WireError::invalid)?,
        command: params.command,
        workdir: workdir.map_err(WireError::invalid)?,
        env: BTreeMap::new(),
        vault_queries: params.vault_context,
    })
}

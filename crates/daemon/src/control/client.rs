//! The command line's side of a control connection: it sends one request at a time and receives its events as they
//! come.

use std::time::Duration;

use agentiso_core::network::PolicyChange;
use futures::{SinkExt, StreamExt};
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::net::UnixStream;
use tokio_util::codec::{Framed, LinesCodec, LinesCodecError};

use super::connect::Connected;
use super::hello::Welcome;
use super::jobs::{Job, JobKilled, JobOutput, JobParams, JobStarted};
use super::overview::Overview;
use super::server::MAX_LINE_BYTES;
use super::swarm::{SwarmParams, SwarmResult};
use super::wire::{
    BridgeResult, CreateParams, CreateResult, Event, ExecParams, ExecResult, ExportParams, ExportResult,
    ForkManyParams, ForkManyResult, ForkParams, ForkResult, ImportParams, ImportResult, Op, Reply, Request,
    RestoreResult, Snapshot, SnapshotResult, StatusResult, WireError, Workspace,
};
use crate::info::{LogKind, Logs, PortForward};
use crate::metrics::Health;
use crate::session::{QuarantineItem, Recovered};
use crate::vms::{SnapshotDiff, TemplateInfo};

/// A daemon that shuts down stops its VMs first, in at most half a minute.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug, Error)]
pub enum ControlError {
    /// The daemon's answer to the request.
    #[error(transparent)]
    Daemon(WireError),
    #[error("the daemon closed the connection before it answered")]
    Closed,
    #[error("the connection to the daemon broke: {0}")]
    Broken(#[from] LinesCodecError),
    #[error("malformed answer from the daemon: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("the daemon did not stop within {} s", SHUTDOWN_DEADLINE.as_secs())]
    ShutdownTimedOut,
}

/// A control connection. Dropping it cancels the request that is under way.
#[derive(Debug)]
pub struct ControlClient {
    lines: Framed<UnixStream, LinesCodec>,
    welcome: Welcome,
    next_id: u64,
}

impl ControlClient {
    pub fn new(connected: Connected) -> Self {
        let codec = LinesCodec::new_with_max_length(MAX_LINE_BYTES);
        Self { lines: Framed::new(connected.stream, codec), welcome: connected.welcome, next_id: 1 }
    }

    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Sends one request and waits for its result; its events go to `on_event`.
    pub async fn call<T: DeserializeOwned>(
        &mut self,
        op: Op,
        mut on_event: impl FnMut(Event),
    ) -> Result<T, ControlError> {
        let id = self.next_id;
        self.next_id += 1;
        let line = serde_json::to_string(&Request { id, op })?;
        self.lines.send(line).await?;
        while let Some(line) = self.lines.next().await {
            match serde_json::from_str(&line?)? {
                Reply::Event { id: of, event } if of == id => on_event(event),
                Reply::Result { id: of, result } if of == id => return Ok(serde_json::from_value(result)?),
                Reply::Error { id: of, error } if of.is_none_or(|of| of == id) => {
                    return Err(ControlError::Daemon(error));
                }
                // The reply to a request that was given up.
                Reply::Event { .. } | Reply::Result { .. } | Reply::Error { .. } => {}
            }
        }
        Err(ControlError::Closed)
    }

    async fn ask<T: DeserializeOwned>(&mut self, op: Op) -> Result<T, ControlError> {
        self.call(op, |_| ()).await
    }

    pub async fn ping(&mut self) -> Result<(), ControlError> {
        self.ask(Op::Ping).await
    }

    pub async fn status(&mut self) -> Result<StatusResult, ControlError> {
        self.ask(Op::Status).await
    }

    /// The metrics as OpenMetrics text.
    pub async fn metrics(&mut self) -> Result<String, ControlError> {
        self.ask(Op::Metrics).await
    }

    pub async fn health(&mut self) -> Result<Health, ControlError> {
        self.ask(Op::Health).await
    }

    pub async fn overview(&mut self) -> Result<Overview, ControlError> {
        self.ask(Op::Overview).await
    }

    pub async fn ps(&mut self) -> Result<Vec<Workspace>, ControlError> {
        self.ask(Op::Ps { state: None }).await
    }

    pub async fn quarantine(&mut self) -> Result<Vec<QuarantineItem>, ControlError> {
        self.ask(Op::Quarantine).await
    }

    pub async fn recover(&mut self, wanted: &str) -> Result<Recovered, ControlError> {
        self.ask(Op::Recover { wanted: wanted.to_owned() }).await
    }

    /// Returns the id of the deleted item.
    pub async fn discard(&mut self, wanted: &str) -> Result<String, ControlError> {
        self.ask(Op::Discard { wanted: wanted.to_owned() }).await
    }

    pub async fn create(
        &mut self,
        params: CreateParams,
        on_event: impl FnMut(Event),
    ) -> Result<CreateResult, ControlError> {
        self.call(Op::Create(params), on_event).await
    }

    pub async fn exec(
        &mut self,
        params: ExecParams,
        on_event: impl FnMut(Event),
    ) -> Result<ExecResult, ControlError> {
        self.call(Op::Exec(params), on_event).await
    }

    pub async fn start_job(&mut self, params: ExecParams) -> Result<JobStarted, ControlError> {
        self.ask(Op::StartJob(params)).await
    }

    pub async fn jobs(&mut self, workspace: &str) -> Result<Vec<Job>, ControlError> {
        self.ask(Op::Jobs { workspace: workspace.to_owned() }).await
    }

    pub async fn poll_job(&mut self, params: JobParams) -> Result<JobOutput, ControlError> {
        self.ask(Op::PollJob(params)).await
    }

    pub async fn kill_job(
        &mut self,
        workspace: &str,
        job_id: u64,
        signal: i32,
    ) -> Result<JobKilled, ControlError> {
        self.ask(Op::KillJob { workspace: workspace.to_owned(), job_id, signal }).await
    }

    pub async fn rm(&mut self, workspace: &str) -> Result<Workspace, ControlError> {
        self.ask(Op::Rm { workspace: workspace.to_owned() }).await
    }

    pub async fn stop(&mut self, workspace: &str) -> Result<Workspace, ControlError> {
        self.ask(Op::Stop { workspace: workspace.to_owned() }).await
    }

    pub async fn start(
        &mut self,
        workspace: &str,
        on_event: impl FnMut(Event),
    ) -> Result<Workspace, ControlError> {
        self.call(Op::Start { workspace: workspace.to_owned() }, on_event).await
    }

    pub async fn info(&mut self, workspace: &str) -> Result<Workspace, ControlError> {
        self.ask(Op::Info { workspace: workspace.to_owned() }).await
    }

    pub async fn logs(
        &mut self,
        workspace: &str,
        kind: LogKind,
        max_lines: usize,
    ) -> Result<Logs, ControlError> {
        self.ask(Op::Logs { workspace: workspace.to_owned(), kind, max_lines }).await
    }

    pub async fn policy(&mut self, workspace: &str, change: PolicyChange) -> Result<Workspace, ControlError> {
        self.ask(Op::Policy { workspace: workspace.to_owned(), change }).await
    }

    pub async fn forward(
        &mut self,
        workspace: &str,
        guest_port: u16,
        host_port: Option<u16>,
    ) -> Result<PortForward, ControlError> {
        self.ask(Op::Forward { workspace: workspace.to_owned(), guest_port, host_port }).await
    }

    pub async fn grant_bridge(&mut self, workspace: &str) -> Result<BridgeResult, ControlError> {
        self.ask(Op::GrantBridge { workspace: workspace.to_owned() }).await
    }

    pub async fn revoke_bridge(&mut self, workspace: &str) -> Result<(), ControlError> {
        self.ask(Op::RevokeBridge { workspace: workspace.to_owned() }).await
    }

    pub async fn end_forward(&mut self, workspace: &str, guest_port: u16) -> Result<Workspace, ControlError> {
        self.ask(Op::EndForward { workspace: workspace.to_owned(), guest_port }).await
    }

    /// The records arrive as events.
    pub async fn net_log(
        &mut self,
        workspace: &str,
        max_lines: usize,
        follow: bool,
        on_event: impl FnMut(Event),
    ) -> Result<(), ControlError> {
        self.call(Op::NetLog { workspace: workspace.to_owned(), max_lines, follow }, on_event).await
    }

    pub async fn snapshot(
        &mut self,
        workspace: &str,
        snapshot: &str,
        include_memory: bool,
        on_event: impl FnMut(Event),
    ) -> Result<SnapshotResult, ControlError> {
        let (workspace, snapshot) = (workspace.to_owned(), snapshot.to_owned());
        self.call(Op::Snapshot { workspace, snapshot, include_memory }, on_event).await
    }

    pub async fn snapshots(&mut self, workspace: &str) -> Result<Vec<Snapshot>, ControlError> {
        self.ask(Op::Snapshots { workspace: workspace.to_owned() }).await
    }

    pub async fn restore(
        &mut self,
        workspace: &str,
        snapshot: &str,
        on_event: impl FnMut(Event),
    ) -> Result<RestoreResult, ControlError> {
        let (workspace, snapshot) = (workspace.to_owned(), snapshot.to_owned());
        self.call(Op::Restore { workspace, snapshot }, on_event).await
    }

    pub async fn delete_snapshot(
        &mut self,
        workspace: &str,
        snapshot: &str,
    ) -> Result<Snapshot, ControlError> {
        let (workspace, snapshot) = (workspace.to_owned(), snapshot.to_owned());
        self.ask(Op::DeleteSnapshot { workspace, snapshot }).await
    }

    pub async fn diff_snapshot(
        &mut self,
        workspace: &str,
        snapshot: &str,
        on_event: impl FnMut(Event),
    ) -> Result<SnapshotDiff, ControlError> {
        let (workspace, snapshot) = (workspace.to_owned(), snapshot.to_owned());
        self.call(Op::DiffSnapshot { workspace, snapshot }, on_event).await
    }

    pub async fn fork(
        &mut self,
        params: ForkParams,
        on_event: impl FnMut(Event),
    ) -> Result<ForkResult, ControlError> {
        self.call(Op::Fork(params), on_event).await
    }

    pub async fn fork_many(
        &mut self,
        params: ForkManyParams,
        on_event: impl FnMut(Event),
    ) -> Result<ForkManyResult, ControlError> {
        self.call(Op::ForkMany(params), on_event).await
    }

    /// The result of each task arrives as an event. Dropping the future ends the tasks and destroys their workers.
    pub async fn swarm(
        &mut self,
        params: SwarmParams,
        on_event: impl FnMut(Event),
    ) -> Result<SwarmResult, ControlError> {
        self.call(Op::Swarm(params), on_event).await
    }

    pub async fn export_snapshot(
        &mut self,
        params: ExportParams,
        on_event: impl FnMut(Event),
    ) -> Result<ExportResult, ControlError> {
        self.call(Op::ExportSnapshot(params), on_event).await
    }

    pub async fn import_snapshot(
        &mut self,
        params: ImportParams,
        on_event: impl FnMut(Event),
    ) -> Result<ImportResult, ControlError> {
        self.call(Op::ImportSnapshot(params), on_event).await
    }

    pub async fn templates(&mut self) -> Result<Vec<TemplateInfo>, ControlError> {
        self.ask(Op::Templates).await
    }

    /// The workspaces that would be lost with an image.
    pub async fn image_users(&mut self, image: &str) -> Result<Vec<Workspace>, ControlError> {
        self.ask(Op::ImageRmCheck { image: image.to_owned() }).await
    }

    /// Returns when the daemon has stopped its VMs and ended.
    pub async fn shutdown(mut self) -> Result<(), ControlError> {
        let () = self.ask(Op::Shutdown).await?;
        let ended = async { while let Some(Ok(_)) = self.lines.next().await {} };
        tokio::time::timeout(SHUTDOWN_DEADLINE, ended).await.map_err(|_| ControlError::ShutdownTimedOut)
    }
}

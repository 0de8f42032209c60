//! The commands' client of the daemon. It finds or starts the daemon, makes calls, and turns errors into failures with
//! hints.

use agentiso_core::names::{SnapshotName, WorkspaceRef};
use agentiso_core::network::PolicyChange;
use agentiso_daemon::control::jobs::{Job, JobKilled, JobOutput, JobParams, JobStarted};
use agentiso_daemon::control::overview::Overview;
use agentiso_daemon::control::swarm::{SwarmParams, SwarmResult};
use agentiso_daemon::control::wire::{
    BridgeResult, CreateParams, CreateResult, Event, ExecParams, ExecResult, ExportParams, ExportResult,
    ForkManyParams, ForkManyResult, ForkParams, ForkResult, ImportParams, ImportResult, Op, RestoreResult,
    Snapshot, SnapshotResult, StatusResult, Workspace,
};
use agentiso_daemon::control::{
    ConnectError, Connected, ControlClient, ControlError, Hello, connect, connect_or_start,
};
use agentiso_daemon::{
    Health, McpOptions, PortForward, QuarantineItem, Recovered, SnapshotDiff, share_directory,
};
use serde::de::DeserializeOwned;

use crate::context::Context;
use crate::failure::Failure;
use crate::other_daemon;
use crate::progress::Display;

#[derive(Debug)]
pub(crate) struct Client(ControlClient);

impl Client {
    /// Connects to the daemon, and starts it first if none runs.
    pub(crate) async fn open(context: &Context) -> Result<Self, Failure> {
        let connected = connect_daemon(context, &Hello::control()).await?;
        Ok(Self(ControlClient::new(connected)))
    }

    /// Connects to a daemon that runs; `None` if there is none.
    pub(crate) async fn open_running(context: &Context) -> Result<Option<Self>, Failure> {
        match connect(&context.config.paths, &Hello::control()).await {
            Ok(connected) => Ok(Some(Self(ControlClient::new(connected)))),
            Err(ConnectError::NotRunning { .. }) => Ok(None),
            Err(error) => Err(connect_failure(context, error)),
        }
    }

    /// The inner client, for calls whose errors one command tells apart.
    pub(crate) fn control(&mut self) -> &mut ControlClient {
        &mut self.0
    }

    pub(crate) fn into_control(self) -> ControlClient {
        self.0
    }

    async fn ask<T: DeserializeOwned>(&mut self, op: Op) -> Result<T, Failure> {
        self.0.ask(op).await.map_err(control_failure)
    }

    /// Sends a request and shows its progress.
    async fn watch<T: DeserializeOwned>(&mut self, op: Op, display: &Display) -> Result<T, Failure> {
        self.0.call(op, |event| show(display, &event)).await.map_err(control_failure)
    }

    pub(crate) async fn status(&mut self) -> Result<StatusResult, Failure> {
        self.ask(Op::Status).await
    }

    /// The metrics as OpenMetrics text.
    pub(crate) async fn metrics(&mut self) -> Result<String, Failure> {
        self.ask(Op::Metrics).await
    }

    pub(crate) async fn health(&mut self) -> Result<Health, Failure> {
        self.ask(Op::Health).await
    }

    pub(crate) async fn overview(&mut self) -> Result<Overview, Failure> {
        self.ask(Op::Overview).await
    }

    pub(crate) async fn workspaces(&mut self) -> Result<Vec<Workspace>, Failure> {
        self.ask(Op::Ps { state: None }).await
    }

    pub(crate) async fn quarantine(&mut self) -> Result<Vec<QuarantineItem>, Failure> {
        self.ask(Op::Quarantine).await
    }

    pub(crate) async fn recover(&mut self, wanted: &str) -> Result<Recovered, Failure> {
        self.ask(Op::Recover { wanted: wanted.to_owned() }).await
    }

    /// Returns the id of the deleted item.
    pub(crate) async fn discard(&mut self, wanted: &str) -> Result<String, Failure> {
        self.ask(Op::Discard { wanted: wanted.to_owned() }).await
    }

    /// Resolves a name, an id, or the beginning of an id. A text that matches nothing is returned as it is, because the
    /// daemon's error for it is more helpful.
    pub(crate) async fn resolve(&mut self, wanted: &str) -> Result<String, Failure> {
        match WorkspaceRef::parse(wanted) {
            WorkspaceRef::Id(_) => Ok(wanted.to_owned()),
            WorkspaceRef::Name(_) => resolve_in(&self.workspaces().await?, wanted),
        }
    }

    pub(crate) async fn create(
        &mut self,
        params: CreateParams,
        display: &Display,
    ) -> Result<CreateResult, Failure> {
        self.watch(Op::Create(params), display).await
    }

    /// Starts a job. Returns its number.
    pub(crate) async fn start_job(&mut self, mut params: ExecParams) -> Result<u64, Failure> {
        params.workspace = self.resolve(&params.workspace).await?;
        let started: JobStarted = self.ask(Op::StartJob(params)).await?;
        Ok(started.job_id)
    }

    pub(crate) async fn jobs(&mut self, wanted: &str) -> Result<Vec<Job>, Failure> {
        let workspace = self.resolve(wanted).await?;
        self.ask(Op::Jobs { workspace }).await
    }

    /// The output of a job. Its workspace must be resolved already, because the output is polled.
    pub(crate) async fn job_output(&mut self, params: JobParams) -> Result<JobOutput, Failure> {
        self.ask(Op::PollJob(params)).await
    }

    /// Sends a signal to a job. Returns whether it still runs.
    pub(crate) async fn kill_job(&mut self, wanted: &str, job_id: u64, signal: i32) -> Result<bool, Failure> {
        let workspace = self.resolve(wanted).await?;
        let killed: JobKilled = self.ask(Op::KillJob { workspace, job_id, signal }).await?;
        Ok(killed.running)
    }

    /// Runs a command and passes its output to `on_event`.
    pub(crate) async fn exec(
        &mut self,
        mut params: ExecParams,
        on_event: impl FnMut(Event),
    ) -> Result<ExecResult, Failure> {
        params.workspace = self.resolve(&params.workspace).await?;
        self.0.call(Op::Exec(params), on_event).await.map_err(control_failure)
    }

    pub(crate) async fn start(&mut self, wanted: &str, display: &Display) -> Result<Workspace, Failure> {
        let workspace = self.resolve(wanted).await?;
        self.watch(Op::Start { workspace }, display).await
    }

    pub(crate) async fn stop(&mut self, wanted: &str) -> Result<Workspace, Failure> {
        let workspace = self.resolve(wanted).await?;
        self.ask(Op::Stop { workspace }).await
    }

    /// All workspaces with the sizes of their disks and snapshots. Workspaces that are destroyed meanwhile are left
    /// out.
    pub(crate) async fn measured_workspaces(&mut self) -> Result<Vec<Workspace>, Failure> {
        let mut measured = Vec::new();
        for workspace in self.workspaces().await? {
            match self.0.ask(Op::Info { workspace: workspace.id.to_string() }).await {
                Ok(workspace) => measured.push(workspace),
                Err(ControlError::Daemon(answer)) if answer.code == "workspace_not_found" => {}
                Err(error) => return Err(control_failure(error)),
            }
        }
        Ok(measured)
    }

    pub(crate) async fn snapshot(
        &mut self,
        wanted: &str,
        name: &SnapshotName,
        include_memory: bool,
        display: &Display,
    ) -> Result<SnapshotResult, Failure> {
        let (workspace, snapshot) = (self.resolve(wanted).await?, name.to_string());
        self.watch(Op::Snapshot { workspace, snapshot, include_memory }, display).await
    }

    pub(crate) async fn snapshots(&mut self, wanted: &str) -> Result<Vec<Snapshot>, Failure> {
        let workspace = self.resolve(wanted).await?;
        self.ask(Op::Snapshots { workspace }).await
    }

    pub(crate) async fn restore(
        &mut self,
        wanted: &str,
        name: &SnapshotName,
        display: &Display,
    ) -> Result<RestoreResult, Failure> {
        let (workspace, snapshot) = (self.resolve(wanted).await?, name.to_string());
        self.watch(Op::Restore { workspace, snapshot }, display).await
    }

    pub(crate) async fn delete_snapshot(
        &mut self,
        wanted: &str,
        name: &SnapshotName,
    ) -> Result<Snapshot, Failure> {
        let (workspace, snapshot) = (self.resolve(wanted).await?, name.to_string());
        self.ask(Op::DeleteSnapshot { workspace, snapshot }).await
    }

    pub(crate) async fn diff_snapshot(
        &mut self,
        wanted: &str,
        name: &SnapshotName,
        display: &Display,
    ) -> Result<SnapshotDiff, Failure> {
        let (workspace, snapshot) = (self.resolve(wanted).await?, name.to_string());
        self.watch(Op::DiffSnapshot { workspace, snapshot }, display).await
    }

    /// Changes the policy of a workspace. An empty change only returns it.
    pub(crate) async fn policy(&mut self, wanted: &str, change: PolicyChange) -> Result<Workspace, Failure> {
        let workspace = self.resolve(wanted).await?;
        self.ask(Op::Policy { workspace, change }).await
    }

    pub(crate) async fn forward(
        &mut self,
        wanted: &str,
        guest_port: u16,
        host_port: Option<u16>,
    ) -> Result<PortForward, Failure> {
        let workspace = self.resolve(wanted).await?;
        self.ask(Op::Forward { workspace, guest_port, host_port }).await
    }

    pub(crate) async fn grant_bridge(&mut self, wanted: &str) -> Result<BridgeResult, Failure> {
        let workspace = self.resolve(wanted).await?;
        self.ask(Op::GrantBridge { workspace }).await
    }

    pub(crate) async fn revoke_bridge(&mut self, wanted: &str) -> Result<(), Failure> {
        let workspace = self.resolve(wanted).await?;
        self.ask(Op::RevokeBridge { workspace }).await
    }

    pub(crate) async fn end_forward(&mut self, wanted: &str, guest_port: u16) -> Result<Workspace, Failure> {
        let workspace = self.resolve(wanted).await?;
        self.ask(Op::EndForward { workspace, guest_port }).await
    }

    /// The records arrive as events.
    pub(crate) async fn net_log(
        &mut self,
        wanted: &str,
        max_lines: usize,
        follow: bool,
        on_event: impl FnMut(Event),
    ) -> Result<(), Failure> {
        let workspace = self.resolve(wanted).await?;
        let op = Op::NetLog { workspace, max_lines, follow };
        self.0.call(op, on_event).await.map_err(control_failure)
    }

    pub(crate) async fn fork(
        &mut self,
        mut params: ForkParams,
        display: &Display,
    ) -> Result<ForkResult, Failure> {
        params.workspace = self.resolve(&params.workspace).await?;
        self.watch(Op::Fork(params), display).await
    }

    pub(crate) async fn fork_many(
        &mut self,
        mut params: ForkManyParams,
        display: &Display,
    ) -> Result<ForkManyResult, Failure> {
        params.workspace = self.resolve(&params.workspace).await?;
        self.watch(Op::ForkMany(params), display).await
    }

    /// The result of each task arrives as an event. Dropping the future ends the tasks and destroys their workers.
    pub(crate) async fn swarm(
        &mut self,
        params: SwarmParams,
        on_event: impl FnMut(Event),
    ) -> Result<SwarmResult, Failure> {
        self.0.call(Op::Swarm(params), on_event).await.map_err(control_failure)
    }

    pub(crate) async fn export_snapshot(
        &mut self,
        mut params: ExportParams,
        display: &Display,
    ) -> Result<ExportResult, Failure> {
        params.workspace = self.resolve(&params.workspace).await?;
        self.watch(Op::ExportSnapshot(params), display).await
    }

    pub(crate) async fn import_snapshot(
        &mut self,
        params: ImportParams,
        display: &Display,
    ) -> Result<ImportResult, Failure> {
        self.watch(Op::ImportSnapshot(params), display).await
    }

    pub(crate) async fn destroy(&mut self, wanted: &str) -> Result<Workspace, Failure> {
        let workspace = self.resolve(wanted).await?;
        self.ask(Op::Rm { workspace }).await
    }
}

/// A connection to the daemon for an MCP session.
pub(crate) async fn connect_mcp(
    context: &Context,
    options: McpOptions,
) -> Result<tokio::net::UnixStream, Failure> {
    Ok(connect_daemon(context, &Hello::mcp(options)).await?.stream)
}

async fn connect_daemon(context: &Context, hello: &Hello) -> Result<Connected, Failure> {
    connect_or_start(&context.config.paths, &context.daemon_command()?, hello)
        .await
        .map_err(|error| connect_failure(context, error))
}

fn connect_failure(context: &Context, error: ConnectError) -> Failure {
    let hint = match &error {
        ConnectError::StartFailed { reason } if !reason.contains("log is") => {
            Some(format!("the daemon's log is {}", context.config.paths.daemon_log().display()))
        }
        ConnectError::Socket { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            Some("the daemon belongs to another user".to_owned())
        }
        ConnectError::OtherState { theirs, ours, .. } => {
            let in_our_directory = theirs.as_ref().is_some_and(|theirs| share_directory(theirs, ours));
            Some(other_daemon::hint(in_our_directory).to_owned())
        }
        ConnectError::Prepare { .. } => Some("`agentiso check` shows which directories are used".to_owned()),
        ConnectError::StartFailed { .. }
        | ConnectError::StartTimedOut { .. }
        | ConnectError::NotRunning { .. }
        | ConnectError::Socket { .. }
        | ConnectError::Hello(_)
        | ConnectError::Refused { .. } => None,
    };
    Failure::from(error).maybe_hint(hint)
}

pub(crate) fn control_failure(error: ControlError) -> Failure {
    match error {
        ControlError::Daemon(answer) => Failure::new(answer.message).maybe_hint(answer.hint),
        ControlError::Closed | ControlError::Broken(_) => Failure::from(error)
            .hint("run the command again: it starts the daemon if needed, and workspaces are kept"),
        ControlError::Malformed(_) => Failure::from(error)
            .hint("the daemon may be of another version; stop it with `agentiso daemon stop`, and the next command starts this version"),
        ControlError::ShutdownTimedOut => Failure::from(error),
    }
}

fn show(display: &Display, event: &Event) {
    match event {
        Event::Progress { step, fraction } => display.update(step, *fraction),
        Event::Started { .. }
        | Event::Output { .. }
        | Event::TaskDone(_)
        | Event::Flow(_)
        | Event::FlowsLost { .. } => {}
    }
}

pub(crate) fn resolve_in(workspaces: &[Workspace], wanted: &str) -> Result<String, Failure> {
    if workspaces.iter().any(|workspace| workspace.name == wanted) {
        return Ok(wanted.to_owned());
    }
    let prefix = wanted.to_ascii_lowercase();
    let ids = workspaces.iter().map(|workspace| workspace.id.to_string());
    let mut matching = ids.filter(|id| !prefix.is_empty() && id.starts_with(&prefix));
    match (matching.next(), matching.count()) {
        (Some(id), 0) => Ok(id),
        (Some(_), others) => {
            Err(Failure::new(format!("{wanted:?} matches the beginning of {} ids", others + 1))
                .hint("give more digits"))
        }
        (None, _) => Ok(wanted.to_owned()),
    }
}

//! Runs one control request: parses it into types, hands it to the session and sends the answer.

use std::time::Duration;

use agentiso_core::env;
use agentiso_core::lifecycle::PublicState;
use agentiso_core::names::{ImageName, NamePrefix, SnapshotName, WorkspaceName, WorkspaceRef};
use agentiso_core::paths::GuestPath;
use futures::StreamExt;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use tokio::sync::broadcast::error::RecvError;

use super::failure::{RequestError, ShellHint};
use super::wire::{
    Blob, BridgeResult, CreateParams, CreateResult, Event, ExecParams, ExecResult, ExportParams,
    ExportResult, ForkManyParams, ForkManyResult, ForkParams, ForkResult, ImportParams, ImportResult, Op,
    Reply, RestoreResult, Snapshot, SnapshotResult, StatusResult, Stream, WireError, Workspace,
};
use super::{jobs, overview, swarm};
use crate::daemon::Daemon;
use crate::info::{BatchForked, CreateRequest, ExportRequest, ForkManyRequest, ForkRequest, ImportRequest};
use crate::session::{BridgeAccess, Session};
use crate::vms::Progress;
use crate::vms::{ExecEvent, ExecSpec, OutputStream};

/// Sends the replies to one request.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    id: u64,
    replies: mpsc::Sender<Outgoing>,
}

/// A reply on its way to the writer, which confirms when it has been written.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) reply: Reply,
    pub(super) written: Option<oneshot::Sender<()>>,
}

impl From<Reply> for Outgoing {
    fn from(reply: Reply) -> Self {
        Self { reply, written: None }
    }
}

impl Outbox {
    pub(super) fn new(id: u64, replies: mpsc::Sender<Outgoing>) -> Self {
        Self { id, replies }
    }

    async fn send(&self, reply: Reply) {
        // The connection's reader notices a client that disconnected, and cancels this request.
        let _ = self.replies.send(reply.into()).await;
    }

    /// Returns when the reply was written, or cannot be written any more.
    async fn send_and_flush(&self, reply: Reply) {
        let (written, left) = oneshot::channel();
        if self.replies.send(Outgoing { reply, written: Some(written) }).await.is_ok() {
            let _ = left.await;
        }
    }

    async fn event(&self, event: Event) {
        self.send(Reply::Event { id: self.id, event }).await;
    }

    /// Reports progress; reports that the client is too slow to receive are dropped.
    fn progress(&self) -> Progress {
        let outbox = self.clone();
        Progress::new(move |step, fraction| {
            let event = Event::Progress { step: step.to_owned(), fraction };
            let _ = outbox.replies.try_send(Reply::Event { id: outbox.id, event }.into());
        })
    }
}

pub(super) async fn run(daemon: Daemon, session: Session, op: Op, outbox: Outbox, hint: ShellHint) {
    let shutdown = matches!(op, Op::Shutdown);
    let reply = match answer(&session, op, &outbox).await {
        Ok(result) => Reply::Result { id: outbox.id, result },
        Err(error) => {
            let error = error.into_wire(hint);
            session.count_error(&error.code);
            Reply::Error { id: Some(outbox.id), error }
        }
    };
    if shutdown {
        // If no VM runs, connections end at once, so the answer must be written before that.
        outbox.send_and_flush(reply).await;
        daemon.begin_shutdown();
    } else {
        outbox.send(reply).await;
    }
}

async fn answer(session: &Session, op: Op, outbox: &Outbox) -> Result<serde_json::Value, RequestError> {
    match op {
        Op::Ping | Op::Shutdown => json(()),
        Op::Status => json(status(session).await),
        Op::Metrics => json(session.metrics().map_err(WireError::internal)?),
        Op::Health => json(session.health()),
        Op::Overview => json(overview::overview(session)),
        Op::Ps { state } => json(views(session.list(state))),
        Op::Create(params) => json(create(session, params, outbox).await?),
        Op::Exec(params) => json(exec(session, params, outbox).await?),
        Op::StartJob(params) => json(jobs::start(session, params).await?),
        Op::Jobs { workspace } => json(jobs::list(session, &workspace).await?),
        Op::PollJob(params) => json(jobs::poll(session, params).await?),
        Op::KillJob { workspace, job_id, signal } => {
            json(jobs::kill(session, &workspace, job_id, signal).await?)
        }
        Op::Rm { workspace } => json(view(session.destroy(&WorkspaceRef::parse(&workspace)).await?)),
        Op::Stop { workspace } => json(view(session.stop(&WorkspaceRef::parse(&workspace)).await?)),
        Op::Start { workspace } => {
            json(view(session.start(&WorkspaceRef::parse(&workspace), &outbox.progress()).await?))
        }
        Op::Info { workspace } => json(view(session.info(&WorkspaceRef::parse(&workspace)).await?)),
        Op::Logs { workspace, kind, max_lines } => {
            json(session.logs(&WorkspaceRef::parse(&workspace), kind, max_lines).await?)
        }
        Op::Snapshot { workspace, snapshot, include_memory } => {
            let (workspace, name) = (WorkspaceRef::parse(&workspace), snapshot_name(&snapshot)?);
            let made = session.snapshot(&workspace, name, include_memory, &outbox.progress()).await?;
            json(SnapshotResult {
                workspace: made.workspace.into(),
                snapshot: made.snapshot.into(),
                pause_us: u64::try_from(made.pause.as_micros()).unwrap_or(u64::MAX),
            })
        }
        Op::Snapshots { workspace } => {
            let all = session.snapshots(&WorkspaceRef::parse(&workspace)).await?;
            json(all.into_iter().map(Snapshot::from).collect::<Vec<_>>())
        }
        Op::Restore { workspace, snapshot } => {
            let (workspace, name) = (WorkspaceRef::parse(&workspace), snapshot_name(&snapshot)?);
            let restored = session.restore(&workspace, &name, &outbox.progress()).await?;
            json(RestoreResult {
                workspace: restored.workspace.into(),
                snapshot: restored.snapshot.into(),
                rung: restored.rung,
                warning: restored.warning,
            })
        }
        Op::DeleteSnapshot { workspace, snapshot } => {
            let name = snapshot_name(&snapshot)?;
            json(Snapshot::from(session.delete_snapshot(&WorkspaceRef::parse(&workspace), &name).await?))
        }
        Op::DiffSnapshot { workspace, snapshot } => {
            let (workspace, name) = (WorkspaceRef::parse(&workspace), snapshot_name(&snapshot)?);
            json(session.diff_snapshot(&workspace, &name, &outbox.progress()).await?)
        }
        Op::Swarm(params) => {
            let (tasks, result) = swarm::run(session, params, &outbox.progress()).await?;
            for task in tasks {
                outbox.event(Event::TaskDone(Box::new(task))).await;
            }
            json(result)
        }
        Op::Fork(params) => json(fork(session, params, outbox).await?),
        Op::ForkMany(params) => json(fork_many(session, params, outbox).await?),
        Op::ExportSnapshot(params) => json(export_snapshot(session, params, outbox).await?),
        Op::ImportSnapshot(params) => json(import_snapshot(session, params, outbox).await?),
        Op::Policy { workspace, change } => {
            let workspace = WorkspaceRef::parse(&workspace);
            let info = match change.is_empty() {
                true => session.info(&workspace).await?,
                false => session.change_policy(&workspace, &change).await?,
            };
            json(view(info))
        }
        Op::Forward { workspace, guest_port, host_port } => {
            let workspace = WorkspaceRef::parse(&workspace);
            json(session.forward_port(&workspace, guest_port, host_port).await?.1)
        }
        Op::GrantBridge { workspace } => {
            let BridgeAccess { url, token } = session.grant_bridge(&WorkspaceRef::parse(&workspace)).await?;
            json(BridgeResult { url, token: token.expose().to_owned() })
        }
        Op::RevokeBridge { workspace } => {
            session.revoke_bridge(&WorkspaceRef::parse(&workspace)).await?;
            json(())
        }
        Op::EndForward { workspace, guest_port } => {
            json(view(session.end_forward(&WorkspaceRef::parse(&workspace), guest_port).await?))
        }
        Op::NetLog { workspace, max_lines, follow } => {
            net_log(session, &WorkspaceRef::parse(&workspace), max_lines, follow, outbox).await?;
            json(())
        }
        Op::Quarantine => json(session.quarantine().await?),
        Op::Recover { wanted } => json(session.recover(&wanted).await?),
        Op::Discard { wanted } => json(session.discard(&wanted).await?),
        Op::Templates => json(session.templates()),
        Op::ImageRmCheck { image } => {
            let image = ImageName::parse(&image).map_err(WireError::invalid)?;
            json(views(session.image_users(&image)))
        }
    }
}

fn view(info: crate::info::WorkspaceInfo) -> Workspace {
    info.into()
}

fn views(infos: Vec<crate::info::WorkspaceInfo>) -> Vec<Workspace> {
    infos.into_iter().map(view).collect()
}

fn json(value: impl Serialize) -> Result<serde_json::Value, RequestError> {
    Ok(serde_json::to_value(value).map_err(WireError::invalid)?)
}

async fn status(session: &Session) -> StatusResult {
    let (host, host_problem) = match session.host_facts().await {
        Ok(facts) => (Some(facts), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let workspaces = session.list(None);
    StatusResult {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        host_problem,
        host,
        running: workspaces.iter().filter(|info| info.state == PublicState::Running).count(),
        workspaces: workspaces.len(),
    }
}

async fn create(
    session: &Session,
    params: CreateParams,
    outbox: &Outbox,
) -> Result<CreateResult, RequestError> {
    let request = CreateRequest {
        name: params.name.as_deref().map(WorkspaceName::parse).transpose().map_err(WireError::invalid)?,
        base_image: params
            .base_image
            .as_deref()
            .map(ImageName::parse)
            .transpose()
            .map_err(WireError::invalid)?,
        vcpus: params.vcpus,
        memory_mb: params.memory_mb,
        disk_gb: params.disk_gb,
        network: params.network,
    };
    let created = session.create(request, &outbox.progress()).await?;
    Ok(CreateResult {
        workspace: created.info.into(),
        boot_time_ms: created.boot_time_ms,
        from_pool: created.from_pool,
    })
}

fn snapshot_name(text: &str) -> Result<SnapshotName, WireError> {
    SnapshotName::parse(text).map_err(WireError::invalid)
}

async fn fork(session: &Session, params: ForkParams, outbox: &Outbox) -> Result<ForkResult, RequestError> {
    let request = ForkRequest {
        source: WorkspaceRef::parse(&params.workspace),
        snapshot: snapshot_name(&params.snapshot)?,
        new_name: params.name.as_deref().map(WorkspaceName::parse).transpose().map_err(WireError::invalid)?,
        setup_commands: params.setup_commands,
    };
    let forked = session.fork(request, &outbox.progress()).await?;
    Ok(ForkResult {
        workspace: forked.workspace.into(),
        boot_time_ms: forked.boot_time_ms,
        warning: forked.warning,
    })
}

async fn fork_many(
    session: &Session,
    params: ForkManyParams,
    outbox: &Outbox,
) -> Result<ForkManyResult, RequestError> {
    let request = ForkManyRequest {
        source: WorkspaceRef::parse(&params.workspace),
        snapshot: snapshot_name(&params.snapshot)?,
        count: params.count,
        name_prefix: NamePrefix::parse(&params.name_prefix).map_err(WireError::invalid)?,
        setup_commands: params.setup_commands,
    };
    let forked = session.fork_many(request, &outbox.progress()).await?;
    let BatchForked { workers, failures, warnings } = forked;
    Ok(ForkManyResult { workers: views(workers), failures, warnings })
}

async fn net_log(
    session: &Session,
    workspace: &WorkspaceRef,
    max_lines: usize,
    follow: bool,
    outbox: &Outbox,
) -> Result<(), RequestError> {
    let (tail, mut coming) = session.network_log(workspace, max_lines)?;
    for record in tail {
        outbox.event(Event::Flow(record)).await;
    }
    if !follow {
        return Ok(());
    }
    loop {
        match coming.recv().await {
            Ok(record) => outbox.event(Event::Flow(record)).await,
            Err(RecvError::Lagged(count)) => outbox.event(Event::FlowsLost { count }).await,
            // The workspace is gone.
            Err(RecvError::Closed) => return Ok(()),
        }
    }
}

async fn export_snapshot(
    session: &Session,
    params: ExportParams,
    outbox: &Outbox,
) -> Result<ExportResult, RequestError> {
    let request = ExportRequest {
        source: WorkspaceRef::parse(&params.workspace),
        snapshot: snapshot_name(&params.snapshot)?,
        file: params.file.clone().into(),
        replace: params.replace,
    };
    let exported = session.export_snapshot(request, &outbox.progress()).await?;
    Ok(ExportResult {
        file: params.file,
        file_bytes: exported.file_bytes,
        content_bytes: exported.content_bytes,
        has_memory: exported.has_memory,
    })
}

async fn import_snapshot(
    session: &Session,
    params: ImportParams,
    outbox: &Outbox,
) -> Result<ImportResult, RequestError> {
    let request = ImportRequest {
        file: params.file.into(),
        name: params.name.as_deref().map(WorkspaceName::parse).transpose().map_err(WireError::invalid)?,
        with_memory: !params.disk_only,
    };
    let imported = session.import_snapshot(request, &outbox.progress()).await?;
    Ok(ImportResult {
        workspace: imported.workspace.into(),
        snapshot: imported.snapshot.into(),
        boot_time_ms: imported.boot_time_ms,
        warning: imported.warning,
    })
}

async fn exec(session: &Session, params: ExecParams, outbox: &Outbox) -> Result<ExecResult, RequestError> {
    let variables = params.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    env::check(variables).map_err(WireError::invalid)?;
    let workdir = params.workdir.as_deref().map(GuestPath::parse).transpose().map_err(WireError::invalid)?;
    let spec = ExecSpec {
        command: params.command,
        workdir,
        env: params.env,
        timeout: params.timeout_ms.map(Duration::from_millis),
        head_bytes: params.head_bytes,
        tail_bytes: params.tail_bytes,
        stream: params.stream,
    };
    let guest = session.guest(&WorkspaceRef::parse(&params.workspace)).await?;
    let mut events = guest.exec_stream(spec).await?;
    while let Some(event) = events.next().await {
        match event? {
            ExecEvent::Started { pid } => outbox.event(Event::Started { pid }).await,
            ExecEvent::Output { stream, data } => {
                let stream = match stream {
                    OutputStream::Stdout => Stream::Stdout,
                    OutputStream::Stderr => Stream::Stderr,
                };
                outbox.event(Event::Output { stream, data: Blob(data.into()) }).await;
            }
            ExecEvent::Exited(outcome) => return Ok(outcome.into()),
        }
    }
    Err(WireError {
        code: "guest_unreachable".to_owned(),
        message: "the guest stopped answering before the command ended".to_owned(),
        hint: None,
        retryable: true,
    }
    .into())
}

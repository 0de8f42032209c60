//! Implements the calls of the protocol. Each is passed to the module that does the work.

mod file_calls;
mod job_calls;
mod local_calls;

use std::pin::Pin;
use std::sync::Arc;

use agentiso_protocol::schema::v1;
use agentiso_protocol::schema::v1::guest_server::Guest;
use agentiso_protocol::{ErrorCode, limits, version};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Request, Response, Status, Streaming};

use crate::exec::{self, BackgroundTasks, ExecError, Variables};
use crate::files;
use crate::jobs::Jobs;
use crate::local::Waiting;
use crate::spawn::SpawnError;
use crate::system::{System, SystemError};
use file_calls::{file_status, parse_path};

/// The most queued messages of one transfer between a thread and the connection.
const QUEUED_MESSAGES: usize = 4;

/// The state that all calls share.
#[derive(Debug)]
pub struct Agent {
    system: Arc<dyn System>,
    execs: Arc<Semaphore>,
    file_calls: Arc<Semaphore>,
    waiting_file_calls: Semaphore,
    background: BackgroundTasks,
    jobs: Jobs,
    waiting_polls: Semaphore,
    variables: Variables,
    local: Arc<Waiting>,
    listening: Arc<Semaphore>,
    shut_down: CancellationToken,
    started_ns: u64,
}

type Answer<T> = Result<Response<T>, Status>;
type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Agent {
    /// An agent for this VM, or for none.
    pub fn new(system: Arc<dyn System>) -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let started = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
        let background = BackgroundTasks::default();
        Self {
            system,
            execs: Arc::new(Semaphore::new(limits::MAX_CONCURRENT_EXECS)),
            file_calls: Arc::new(Semaphore::new(limits::MAX_CONCURRENT_FILE_CALLS)),
            waiting_file_calls: Semaphore::new(limits::MAX_WAITING_FILE_CALLS),
            jobs: Jobs::new(background.clone()),
            background,
            waiting_polls: Semaphore::new(limits::MAX_WAITING_POLLS),
            variables: Variables::default(),
            local: Arc::default(),
            listening: Arc::new(Semaphore::new(1)),
            shut_down: CancellationToken::new(),
            started_ns: u64::try_from(started).unwrap_or(0),
        }
    }

    /// Whether the VM is to power off as soon as the host has hung up.
    pub fn is_shut_down(&self) -> bool {
        self.shut_down.is_cancelled()
    }

    /// Resolves when the VM is ready to power off.
    pub async fn shut_down(&self) {
        self.shut_down.cancelled().await;
    }

    /// The VM that the calls are about.
    pub fn system(&self) -> &dyn System {
        &*self.system
    }

    /// Checks that commands and files can be used: the root file system is attached, and the VM is not shutting down.
    fn ready(&self) -> Result<(), Status> {
        if self.is_shut_down() {
            return Err(ErrorCode::ShuttingDown.status("the VM is shutting down"));
        }
        match self.system.stage() {
            v1::Stage::Rooted => Ok(()),
            v1::Stage::Bare | v1::Stage::Unspecified => {
                Err(ErrorCode::NotRooted.status("no disk is attached"))
            }
        }
    }

    /// Runs blocking work for a call about the VM.
    async fn on_system<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn System) -> Result<T, SystemError> + Send + 'static,
    ) -> Answer<T> {
        let system = Arc::clone(&self.system);
        let result = blocking(move || work(&*system)).await?;
        result.map(Response::new).map_err(|error| error.code().status(chain(&error)))
    }
}

fn permit(semaphore: &Arc<Semaphore>, what: &str) -> Result<OwnedSemaphorePermit, Status> {
    Arc::clone(semaphore).try_acquire_owned().map_err(|_none| too_many(what))
}

fn too_many(what: &str) -> Status {
    ErrorCode::Busy.status(format!("too many {what} are in progress"))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    let result = tokio::task::spawn_blocking(work).await;
    result.map_err(|_panic| ErrorCode::System.status("the agent failed during the call"))
}

/// The error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn exec_status(error: &ExecError) -> Status {
    let code = match error {
        ExecError::Workdir { .. } | ExecError::Spawn(SpawnError::Workdir(_)) => ErrorCode::BadWorkdir,
        ExecError::Spawn(SpawnError::Clone(source)) | ExecError::System(source)
            if source.kind() == std::io::ErrorKind::OutOfMemory =>
        {
            ErrorCode::OutOfMemory
        }
        ExecError::Spawn(_) => ErrorCode::SpawnFailed,
        ExecError::System(_) => ErrorCode::System,
    };
    code.status(chain(error))
}

fn invalid(error: impl std::fmt::Display) -> Status {
    ErrorCode::Invalid.status(error.to_string())
}

#[tonic::async_trait]
impl Guest for Agent {
    type ExecStream = Messages<v1::ExecEvent>;
    type ReadFileStream = Messages<v1::ReadFileChunk>;
    type ListDirStream = Messages<v1::ListDirBatch>;
    type ReadTreeStream = Messages<v1::ReadTreeChunk>;
    type ListenStream = Messages<v1::Accepted>;
    type CarryStream = Messages<v1::CarryChunk>;

    async fn hello(&self, request: Request<v1::HelloRequest>) -> Answer<v1::HelloResponse> {
        let theirs = request.into_inner().protocol;
        let protocol = version::settle(theirs).ok_or_else(|| {
            ErrorCode::ProtocolMismatch.status(format!(
                "the host uses protocol version {theirs}, but this agent supports {} to {}",
                version::OLDEST,
                version::CURRENT
            ))
        })?;
        Ok(Response::new(v1::HelloResponse {
            protocol,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            features: version::FEATURES.iter().map(|feature| (*feature).to_owned()).collect(),
            boot_id: self.system.boot_id(),
            stage: self.system.stage().into(),
            init_mode: self.system.init_mode().into(),
            agent_start_ns: self.started_ns,
        }))
    }

    async fn attach_root(&self, request: Request<v1::AttachRootRequest>) -> Answer<v1::AttachRootResponse> {
        let request = request.into_inner();
        self.on_system(move |system| system.attach_root(&request)).await
    }

    async fn identify(&self, request: Request<v1::IdentifyRequest>) -> Answer<v1::IdentifyResponse> {
        self.ready()?;
        let request = request.into_inner();
        self.on_system(move |system| system.identify(&request)).await
    }

    async fn grow_root(&self, request: Request<v1::GrowRootRequest>) -> Answer<v1::GrowRootResponse> {
        self.ready()?;
        let expected = request.into_inner().expected_bytes;
        self.on_system(move |system| system.grow_root(expected)).await
    }

    async fn exec(&self, request: Request<v1::ExecRequest>) -> Answer<Self::ExecStream> {
        self.ready()?;
        let permit = permit(&self.execs, "commands")?;
        let request = request.into_inner();
        let stream = request.stream;
        let request = exec::check(request, &self.variables).map_err(invalid)?;
        if !stream {
            // The answer is sent in one piece after the command has ended.
            let _permit = permit;
            let outcome =
                exec::run(request, None, &self.background).await.map_err(|error| exec_status(&error))?;
            return Ok(Response::new(Box::pin(tokio_stream::once(Ok(outcome.into_event())))));
        }
        let (sink, events) = mpsc::channel(QUEUED_MESSAGES);
        let background = self.background.clone();
        let task = tokio::spawn(async move {
            let _permit = permit;
            let last = exec::run(request, Some(&sink), &background).await;
            let last = last.map(exec::Outcome::into_event).map_err(|error| exec_status(&error));
            // It fails only if the call was cancelled.
            drop(sink.send(last).await);
        });
        // The stream owns the task, so the command ends with the call.
        let task = AbortOnDropHandle::new(task);
        let events = ReceiverStream::new(events).map(move |event| {
            let _owned = &task;
            event
        });
        Ok(Response::new(Box::pin(events)))
    }

    async fn read_file(&self, request: Request<v1::ReadFileRequest>) -> Answer<Self::ReadFileStream> {
        let request = request.into_inner();
        let path = parse_path(&request.path)?;
        let limit = request.limit.unwrap_or(u64::MAX);
        self.stream_file(move |send| files::read(&path, request.offset, limit, send)).await
    }

    async fn write_file(
        &self,
        request: Request<Streaming<v1::WriteFileRequest>>,
    ) -> Answer<v1::WriteFileResponse> {
        self.upload(request, |header, next| files::write(header, next)).await
    }

    async fn write_tree(
        &self,
        request: Request<Streaming<v1::WriteFileRequest>>,
    ) -> Answer<v1::WriteFileResponse> {
        self.upload(request, |header, next| files::write_tree(header, next)).await
    }

    async fn read_tree(&self, request: Request<v1::ReadTreeRequest>) -> Answer<Self::ReadTreeStream> {
        let path = parse_path(&request.into_inner().path)?;
        self.stream_file(move |send| files::read_tree(&path, send)).await
    }

    async fn start_job(&self, request: Request<v1::StartJobRequest>) -> Answer<v1::StartJobResponse> {
        self.job_started(request)
    }

    async fn poll_job(&self, request: Request<v1::PollJobRequest>) -> Answer<v1::PollJobResponse> {
        self.job_polled(request).await
    }

    async fn kill_job(&self, request: Request<v1::KillJobRequest>) -> Answer<v1::KillJobResponse> {
        self.job_killed(request).await
    }

    async fn list_jobs(&self, _request: Request<v1::ListJobsRequest>) -> Answer<v1::ListJobsResponse> {
        Ok(Response::new(v1::ListJobsResponse { jobs: self.jobs.list() }))
    }

    async fn exec_or_job(&self, request: Request<v1::ExecOrJobRequest>) -> Answer<v1::ExecOrJobResponse> {
        self.run_or_keep(request).await
    }

    async fn set_env(&self, request: Request<v1::SetEnvRequest>) -> Answer<v1::SetEnvResponse> {
        self.env_set(request)
    }

    async fn listen(&self, request: Request<v1::ListenRequest>) -> Answer<Self::ListenStream> {
        self.listened(request).await
    }

    async fn carry(&self, request: Request<Streaming<v1::CarryRequest>>) -> Answer<Self::CarryStream> {
        self.carried(request).await
    }

    async fn edit_file(&self, request: Request<v1::EditFileRequest>) -> Answer<v1::EditFileResponse> {
        let request = request.into_inner();
        let path = parse_path(&request.path)?;
        self.on_file(move || {
            let replacements = files::edit(&path, &request.old, &request.new, request.replace_all)?;
            Ok(v1::EditFileResponse { replacements })
        })
        .await
    }

    async fn list_dir(&self, request: Request<v1::ListDirRequest>) -> Answer<Self::ListDirStream> {
        let request = request.into_inner();
        let path = parse_path(&request.path)?;
        let filter = files::ListFilter::parse(&request).map_err(|error| file_status(&error))?;
        self.stream_file(move |send| files::list(&path, &filter, send)).await
    }

    async fn stat(&self, request: Request<v1::StatRequest>) -> Answer<v1::StatResponse> {
        let request = request.into_inner();
        let path = parse_path(&request.path)?;
        self.on_file(move || Ok(v1::StatResponse { info: Some(files::stat(&path, request.follow)?) })).await
    }

    async fn catch_up(&self, request: Request<v1::CatchUpRequest>) -> Answer<v1::CatchUpResponse> {
        let request = request.into_inner();
        self.on_system(move |system| system.catch_up(&request)).await
    }

    async fn sync(&self, _request: Request<v1::SyncRequest>) -> Answer<v1::SyncResponse> {
        self.on_file(|| {
            rustix::fs::sync();
            Ok(v1::SyncResponse {})
        })
        .await
    }

    async fn ping(&self, request: Request<v1::PingRequest>) -> Answer<v1::PingResponse> {
        let payload = request.into_inner().payload;
        if payload.len() > limits::MAX_PING_BYTES {
            return Err(invalid("the payload is too long"));
        }
        Ok(Response::new(v1::PingResponse { payload }))
    }

    async fn spawn_probe(&self, request: Request<v1::SpawnProbeRequest>) -> Answer<v1::SpawnProbeResponse> {
        self.ready()?;
        let _permit = permit(&self.execs, "commands")?;
        let count = request.into_inner().count;
        if !(1..=limits::MAX_SPAWN_PROBES).contains(&count) {
            return Err(invalid(format!(
                "the number of starts to time must be between 1 and {}",
                limits::MAX_SPAWN_PROBES
            )));
        }
        let micros = blocking(move || exec::probe(count)).await?.map_err(|error| exec_status(&error))?;
        Ok(Response::new(v1::SpawnProbeResponse { micros }))
    }

    async fn memory_info(&self, _request: Request<v1::MemoryInfoRequest>) -> Answer<v1::MemoryInfoResponse> {
        self.on_system(|_system| crate::system::memory_info()).await
    }

    async fn shutdown(&self, request: Request<v1::ShutdownRequest>) -> Answer<v1::ShutdownResponse> {
        let grace_ms = request.into_inner().grace_ms.min(limits::MAX_SHUTDOWN_GRACE_MS);
        let answer = self.on_system(move |system| system.quiesce(grace_ms)).await?;
        self.shut_down.cancel();
        Ok(answer)
    }
}

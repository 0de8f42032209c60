//! Commands and files in one running guest, for as long as its VM runs.

mod git;
mod jobs;
mod merge;
mod pipes;
mod transfer;

pub(super) use merge::MergeGuest;
pub use transfer::Transferred;

use std::sync::Arc;
use std::time::{Duration, Instant};

use agentiso_core::ids::WorkspaceId;
use agentiso_core::names::WorkspaceName;
use agentiso_core::paths::GuestPath;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};

use super::{Call, Session};
use crate::error::OpError;
use crate::first_turn::Turn;
use crate::standstill::{standstill, suspended};
use crate::vms::{
    AgentFailure, DirListing, ExecEvent, ExecOutcome, ExecSpec, FileContent, GuestAgent, ListOptions, Vm,
    WriteFile,
};

/// A connection may break because the VM has ended, which is noticed a moment later. The answer then gives the end of
/// the VM as the cause.
const CAUSE_OF_DEATH_WAIT: Duration = Duration::from_millis(500);

/// A handle on a running guest. Calls on it keep the session active.
#[derive(Clone, Debug)]
pub struct Guest {
    session: Session,
    id: WorkspaceId,
    name: WorkspaceName,
    vm: Arc<dyn Vm>,
    agent: Arc<dyn GuestAgent>,
}

/// Events of a running command. Dropping the stream kills the command.
pub type ExecStream = BoxStream<'static, Result<ExecEvent, OpError>>;

impl Guest {
    pub(crate) fn new(session: Session, id: WorkspaceId, name: WorkspaceName, vm: Arc<dyn Vm>) -> Self {
        let agent = vm.agent();
        Self { session, id, name, vm, agent }
    }

    pub fn id(&self) -> WorkspaceId {
        self.id
    }

    pub fn name(&self) -> &WorkspaceName {
        &self.name
    }

    /// Identifies this run of the VM: every start and restore has another one.
    pub(crate) fn run(&self) -> String {
        let record = self.vm.record();
        format!("{} {} {}", record.boot_id, record.pid, record.start_time)
    }

    /// The last flow that its network policy refused since the given time.
    pub(crate) fn refused_since(&self, begun: jiff::Timestamp) -> Option<String> {
        self.session.refused_since(&self.id, begun)
    }

    /// Runs a command to its end. Dropping the future kills it.
    pub async fn exec(&self, spec: ExecSpec) -> Result<ExecOutcome, OpError> {
        let mut events = self.exec_stream(spec).await?;
        while let Some(event) = events.next().await {
            match event? {
                ExecEvent::Exited(outcome) => return Ok(outcome),
                ExecEvent::Started { .. } | ExecEvent::Output { .. } => {}
            }
        }
        let reason = "the guest stopped answering before the command ended".to_owned();
        Err(self.failed("exec", AgentFailure::Broken { reason }).await)
    }

    pub(crate) async fn exec_stream(&self, spec: ExecSpec) -> Result<ExecStream, OpError> {
        let call = self.session.begin_call();
        let turn = self.session.first_turn(&self.id).await;
        let begun = Instant::now();
        let events = self.while_running("exec", self.agent.exec(spec)).await;
        let events = events.inspect_err(|_| self.session.shared().metrics.exec_failed())?;
        Ok(Box::pin(self.clone().watched(events, begun, call, turn)))
    }

    /// Passes events on until the last one, an error, or the end of the VM.
    fn watched(
        self,
        events: impl Stream<Item = Result<ExecEvent, AgentFailure>> + Send + Unpin + 'static,
        begun: Instant,
        call: Call,
        turn: Option<Turn>,
    ) -> impl Stream<Item = Result<ExecEvent, OpError>> + Send {
        let state = Some((events, self, call, turn));
        futures::stream::unfold(state, move |state| async move {
            let (mut events, guest, call, turn) = state?;
            let metrics = &guest.session.shared().metrics;
            let next = {
                let exited = guest.vm.exited();
                tokio::select! {
                    // The guest's last output is worth more than the fact that the VM ended.
                    biased;
                    event = events.next() => event,
                    reason = exited => {
                        metrics.exec_failed();
                        return Some((Err(guest.died(reason)), None));
                    }
                    reason = standstill(&*guest.vm) => {
                        metrics.exec_failed();
                        return Some((Err(suspended(&guest.name, reason)), None));
                    }
                }
            };
            match next? {
                Ok(event) => {
                    let last = match &event {
                        ExecEvent::Exited(outcome) => {
                            metrics.executed(outcome.timed_out, outcome.exit_code, begun.elapsed());
                            true
                        }
                        ExecEvent::Started { .. } | ExecEvent::Output { .. } => false,
                    };
                    Some((Ok(event), (!last).then_some((events, guest, call, turn))))
                }
                Err(failure) => {
                    metrics.exec_failed();
                    Some((Err(guest.failed("exec", failure).await), None))
                }
            }
        })
    }

    /// Reads at most `limit` bytes from `offset`.
    pub async fn read_file(&self, path: &GuestPath, offset: u64, limit: u64) -> Result<FileContent, OpError> {
        let _call = self.session.begin_call();
        self.while_running("reading a file", self.agent.read_file(path, offset, limit)).await
    }

    pub async fn write_file(&self, file: WriteFile, data: Bytes) -> Result<(), OpError> {
        let _call = self.session.begin_call();
        self.while_running("writing a file", self.agent.write_file(file, data)).await
    }

    /// Replaces the first occurrence, or all; returns their number.
    pub async fn edit_file(&self, path: &GuestPath, old: &str, new: &str, all: bool) -> Result<u64, OpError> {
        let _call = self.session.begin_call();
        self.while_running("editing a file", self.agent.edit_file(path, old, new, all)).await
    }

    pub async fn list_dir(&self, path: &GuestPath, options: &ListOptions) -> Result<DirListing, OpError> {
        let _call = self.session.begin_call();
        self.while_running("listing a directory", self.agent.list_dir(path, options)).await
    }

    /// Waits for the answer while the VM lives and is not suspended.
    async fn while_running<T>(
        &self,
        operation: &'static str,
        answer: impl Future<Output = Result<T, AgentFailure>>,
    ) -> Result<T, OpError> {
        tokio::select! {
            biased;
            answered = self.while_alive(operation, answer) => answered,
            reason = standstill(&*self.vm) => Err(suspended(&self.name, reason)),
        }
    }

    /// Waits for the answer while the VM lives, also while it stands still.
    async fn while_alive<T>(
        &self,
        operation: &'static str,
        answer: impl Future<Output = Result<T, AgentFailure>>,
    ) -> Result<T, OpError> {
        let answered = tokio::select! {
            biased;
            answer = answer => answer,
            reason = self.vm.exited() => return Err(self.died(reason)),
        };
        match answered {
            Ok(value) => Ok(value),
            Err(failure) => Err(self.failed(operation, failure).await),
        }
    }

    async fn failed(&self, operation: &'static str, source: AgentFailure) -> OpError {
        if matches!(source, AgentFailure::Broken { .. })
            && let Ok(reason) = tokio::time::timeout(CAUSE_OF_DEATH_WAIT, self.vm.exited()).await
        {
            return self.died(reason);
        }
        OpError::Guest { name: self.name.clone(), operation, source }
    }

    fn died(&self, reason: String) -> OpError {
        OpError::VmDied { name: self.name.clone(), reason }
    }
}

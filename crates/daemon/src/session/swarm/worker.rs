//! Runs one task of a swarm, from its fork to the end of its command.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use agentiso_core::names::{WorkspaceName, WorkspaceRef};
use agentiso_core::network::PolicyChange;
use agentiso_core::paths::GuestPath;
use bytes::Bytes;
use tokio::sync::OnceCell;

use super::opencode;
use super::request::{SwarmRequest, SwarmTask};
use super::run::{TaskDone, TaskOutcome};
use crate::error::OpError;
use crate::info::{ForkRequest, WorkspaceInfo};
use crate::registry::Lifetime;
use crate::session::Guest;
use crate::session::Session;
use crate::vms::{ExecOutcome, ExecSpec, Progress, WriteFile};

/// Bytes kept of the beginning of each stream, from the tool contract, and of its end if the output is longer.
const HEAD_BYTES: u64 = 262_144;
const TAIL_BYTES: u64 = HEAD_BYTES / 4;

const WORKDIR: &str = "/workspace";

/// Environment variables and the paths in them at which a worker finds its texts.
const SHARED_CONTEXT: (&str, &str) = ("SHARED_CONTEXT", "/tmp/.shared-context");
const VAULT_CONTEXT: (&str, &str) = ("VAULT_CONTEXT", "/tmp/.vault-context");

/// Environment variable with a worker's MCP token.
const MCP_TOKEN: &str = "AGENTISO_MCP_TOKEN";

/// A worker that has everything it needs.
struct PreparedWorker {
    guest: Guest,
    /// Environment variables with the paths of its texts and its MCP token.
    env: BTreeMap<String, String>,
}

/// The workers that exist; they must be destroyed or kept at the end.
#[derive(Debug, Default)]
pub(super) struct ForkedWorkers(Mutex<Vec<WorkspaceInfo>>);

impl ForkedWorkers {
    fn add(&self, worker: WorkspaceInfo) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
    }

    pub(super) fn all(&self) -> Vec<WorkspaceInfo> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub(super) struct Workers<'a> {
    pub(super) session: &'a Session,
    /// Prefix of the workers' names.
    pub(super) prefix: &'a str,
    pub(super) request: &'a SwarmRequest,
    pub(super) forked: &'a ForkedWorkers,
    /// The answers to the queries for all workers, once a worker has needed them.
    pub(super) common: OnceCell<Option<String>>,
}

impl Workers<'_> {
    /// Runs one task. Dropping the future undoes an unfinished fork and kills the command; a finished fork is in
    /// `forked`.
    pub(super) async fn run(&self, task: &SwarmTask) -> TaskDone {
        let failed = |workspace, reason: &OpError| TaskDone {
            name: task.name.clone(),
            workspace,
            outcome: TaskOutcome::Failed { reason: reason.to_string() },
            elapsed: Duration::ZERO,
        };
        let worker = match self.fork(task).await {
            Ok(worker) => worker,
            Err(error) => return failed(None, &error),
        };
        let id = worker.id;
        let ready = match self.inject(task, &worker).await {
            Ok(ready) => ready,
            Err(error) => return failed(Some(id), &error),
        };
        let begun = Instant::now();
        match self.execute(task, ready).await {
            Ok(outcome) => TaskDone {
                name: task.name.clone(),
                workspace: Some(id),
                outcome: TaskOutcome::Ran(outcome),
                elapsed: begun.elapsed(),
            },
            Err(error) => failed(Some(id), &error),
        }
    }

    async fn fork(&self, task: &SwarmTask) -> Result<WorkspaceInfo, OpError> {
        let name = format!("{}-{}", self.prefix, task.name);
        let request = ForkRequest {
            source: self.request.golden.clone(),
            snapshot: self.request.snapshot.clone(),
            // A task's name is short enough that this is always a valid name.
            new_name: WorkspaceName::parse(&name).ok(),
            setup_commands: Vec::new(),
        };
        let quiet = Progress::silent();
        let worker = self.session.fork_for(Lifetime::OneCall, request, &quiet).await?.workspace;
        self.forked.add(worker.clone());
        Ok(worker)
    }

    /// Gives a worker its policy, its texts and its access to MCP.
    async fn inject(&self, task: &SwarmTask, worker: &WorkspaceInfo) -> Result<PreparedWorker, OpError> {
        let wanted = WorkspaceRef::Id(worker.id);
        if let Some(allow) = self.request.allow_internet {
            let change = PolicyChange { allow_internet: Some(allow), ..PolicyChange::default() };
            self.session.change_policy(&wanted, &change).await?;
        }
        let guest = self.session.guest(&wanted).await?;
        let knowledge = self.knowledge_for(task).await;
        let mut env = BTreeMap::new();
        for ((name, path), text) in
            [(SHARED_CONTEXT, &self.request.shared_context), (VAULT_CONTEXT, &knowledge)]
        {
            let (Some(text), Ok(target)) = (text, GuestPath::parse(path)) else { continue };
            let file = WriteFile { path: target, mode: Some(0o644), create_parents: true };
            guest.write_file(file, Bytes::copy_from_slice(text.as_bytes())).await?;
            env.insert(name.to_owned(), path.to_owned());
        }
        if self.request.mcp_bridge {
            let access = self.session.grant_bridge(&wanted).await?;
            let choice = opencode::ModelChoice::of(&self.session.shared().config.mcp_bridge);
            opencode::configure(&guest, &access, &choice).await?;
            env.insert(MCP_TOKEN.to_owned(), access.token.expose().to_owned());
        }
        Ok(PreparedWorker { guest, env })
    }

    /// The answers for one worker. Queries for all workers are asked only once.
    async fn knowledge_for(&self, task: &SwarmTask) -> Option<String> {
        let common = &self.request.vault_queries;
        if task.vault_queries.is_empty() {
            return self.common.get_or_init(|| self.session.knowledge(common.clone())).await.clone();
        }
        // The answers are one text with one size limit, so both lists are asked together.
        self.session.knowledge([&common[..], &task.vault_queries[..]].concat()).await
    }

    async fn execute(&self, task: &SwarmTask, ready: PreparedWorker) -> Result<ExecOutcome, OpError> {
        let PreparedWorker { guest, mut env } = ready;
        env.extend(self.request.env.clone());
        env.extend(task.env.clone());
        let spec = ExecSpec {
            workdir: task.workdir.clone().or_else(|| GuestPath::parse(WORKDIR).ok()),
            env,
            timeout: Some(self.request.timeout),
            head_bytes: HEAD_BYTES,
            tail_bytes: TAIL_BYTES,
            ..ExecSpec::shell(&task.command)
        };
        guest.exec(spec).await
    }
}

//! Makes forks of a snapshot, one or several at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use agentiso_core::names::{SnapshotName, WorkspaceName, WorkspaceRef};
use agentiso_core::resources::OutOfRange;
use futures::future::join_all;

use super::Session;
use super::creation::{Creation, FinishedCreation};
use crate::error::OpError;
use crate::info::{BatchForked, ForkFailed, ForkManyRequest, ForkRequest, Forked, MAX_FORKS};
use crate::registry::{Lifetime, WantedForks};
use crate::runner::{ForkSeed, Seed};
use crate::vms::Progress;

impl Session {
    /// Makes an independent workspace from a snapshot, owned by this session. Dropping the future undoes it.
    pub async fn fork(&self, request: ForkRequest, progress: &Progress) -> Result<Forked, OpError> {
        self.fork_for(Lifetime::Lasting, request, progress).await
    }

    /// Like [`Self::fork`], for a fork that may exist for one call only.
    pub(super) async fn fork_for(
        &self,
        lifetime: Lifetime,
        request: ForkRequest,
        progress: &Progress,
    ) -> Result<Forked, OpError> {
        let _call = self.begin_call();
        let ForkRequest { source, snapshot, new_name, setup_commands } = request;
        let names = vec![new_name];
        let mut creations =
            self.begin_forks(lifetime, &source, &snapshot, names, setup_commands, progress)?;
        let Some(creation) = creations.pop() else { unreachable!("one name makes one creation") };
        let (workspace, delivered) = creation?.finished().await?.accept(self)?;
        Ok(Forked { workspace, boot_time_ms: delivered.boot_time_ms, warning: delivered.warning })
    }

    /// Makes several forks; those that fail are reported. Quota and names are reserved for all of them first, so a
    /// batch that is too large makes none. Dropping the future undoes them all.
    pub async fn fork_many(
        &self,
        request: ForkManyRequest,
        progress: &Progress,
    ) -> Result<BatchForked, OpError> {
        let _call = self.begin_call();
        let ForkManyRequest { source, snapshot, count, name_prefix, setup_commands } = request;
        if !(1..=MAX_FORKS).contains(&count) {
            let (value, max) = (count.into(), MAX_FORKS.into());
            return Err(OpError::OutOfRange(vec![OutOfRange { field: "count", value, min: 1, max }]));
        }
        let names: Vec<_> = (1..=count).map(|number| name_prefix.numbered(number)).collect();
        let wanted = names.iter().cloned().map(Some).collect();
        let (lifetime, quiet) = (Lifetime::Lasting, Progress::silent());
        let creations = self.begin_forks(lifetime, &source, &snapshot, wanted, setup_commands, &quiet)?;
        let done = AtomicU32::new(0);
        let creations = creations.into_iter().map(|creation| async {
            let finished = match creation {
                Ok(creation) => creation.finished().await,
                Err(error) => Err(error),
            };
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            progress.report(&format!("{done} of {count} forks are done"), Some(done as f32 / count as f32));
            finished
        });
        // All are accepted together, when the last one is finished: a client that gives up earlier gets none.
        let finished = join_all(creations).await;
        Ok(self.accept_all(names, finished))
    }

    fn accept_all(
        &self,
        names: Vec<WorkspaceName>,
        finished: Vec<Result<FinishedCreation, OpError>>,
    ) -> BatchForked {
        let mut batch = BatchForked::default();
        for ((index, name), finished) in (1..).zip(names).zip(finished) {
            match finished.and_then(|finished| finished.accept(self)) {
                Ok((workspace, delivered)) => {
                    let warning = delivered.warning.map(|warning| format!("{name}: {warning}"));
                    batch.warnings.extend(warning);
                    batch.workers.push(workspace);
                }
                Err(error) => {
                    batch.failures.push(ForkFailed { index, name: name.into(), error: error.to_string() });
                }
            }
        }
        batch
    }

    /// Reserves the forks and starts their runners.
    fn begin_forks(
        &self,
        lifetime: Lifetime,
        source: &WorkspaceRef,
        snapshot: &SnapshotName,
        names: Vec<Option<WorkspaceName>>,
        setup_commands: Vec<String>,
        progress: &Progress,
    ) -> Result<Vec<Result<Creation, OpError>>, OpError> {
        self.refuse_when_closing()?;
        self.refuse_when_full()?;
        let (source, handle) = {
            let state = self.shared().state();
            let found = state.registry.find_owned(source, self.id(), self.kind())?;
            let busy = || OpError::Busy { name: found.name.clone() };
            let handle = state.runners.get(&found.id).cloned().ok_or_else(busy)?;
            (WorkspaceRef::Id(found.id), handle)
        };
        let created_at = jiff::Timestamp::now();
        let wanted = WantedForks { source: &source, snapshot, names, created_at, lifetime };
        let reserved =
            self.shared().change(|registry| registry.reserve_forks(wanted, self.id(), self.kind()))?;
        let setup_commands: Arc<[String]> = setup_commands.into();
        let begin = |fork| {
            let seed = ForkSeed {
                source: handle.clone(),
                source_name: reserved.source_name.clone(),
                snapshot: reserved.snapshot,
                setup_commands: Arc::clone(&setup_commands),
            };
            self.begin_creation(fork, Seed::Snapshot(Box::new(seed)), progress)
        };
        Ok(reserved.forks.into_iter().map(|fork| fork.map(begin)).collect())
    }
}

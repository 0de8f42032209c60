//! Steps that take snapshots of a running VM and restore them.

use std::time::Duration;

use agentiso_core::ids::SnapshotId;
use agentiso_sys::Progress;
use agentiso_vm::Rung;
use tokio::time::Instant;

use super::outcome::{Outcome, describe_pause};
use super::state::{LadderRun, Running, TakenSnapshot};
use crate::before::Before;
use crate::check::Origin;
use crate::verdict::Finding;

impl LadderRun {
    pub(super) async fn snapshot(
        &mut self,
        with_memory: bool,
        progress: &Progress,
    ) -> Result<Outcome, Finding> {
        let source = self.source()?;
        let (taken, time, pause) = self.snapshot_of(&source, with_memory, progress).await?;
        let undisturbed = taken.before.is_undisturbed(source.guest()).await;
        let changed = taken.before.change(source.guest()).await;
        match with_memory {
            true => self.memory = Some(taken),
            false => self.disk = Some(taken),
        }
        undisturbed?;
        changed?;
        Ok(Outcome { time, detail: describe_pause(pause), ..Outcome::default() })
    }

    pub(super) async fn snapshot_of(
        &self,
        source: &Running,
        with_memory: bool,
        progress: &Progress,
    ) -> Result<(TakenSnapshot, Duration, Duration), Finding> {
        let hypervisors = self.hypervisors()?;
        let before = Before::leave(source.guest(), with_memory).await?;
        let (id, began) = (SnapshotId::random(), Instant::now());
        let pause = hypervisors.warm.snapshot(&source.spec, &source.vm, id, with_memory, progress).await?;
        Ok((TakenSnapshot { id, before }, began.elapsed(), pause))
    }

    pub(super) async fn restore(
        &mut self,
        with_memory: bool,
        progress: &Progress,
    ) -> Result<Outcome, Finding> {
        let hypervisors = self.hypervisors()?;
        let (origin, rung, taken) = match with_memory {
            true => (Origin::MemoryRestore, Rung::Memory, &self.memory),
            false => (Origin::DiskRestore, Rung::BareTemplate, &self.disk),
        };
        let taken = taken.clone().ok_or_else(|| Finding::untried("no snapshot was taken"))?;
        let source = self.source.as_mut().ok_or_else(|| Finding::untried("no VM started"))?;
        if let Some(vm) = source.vm.take() {
            vm.kill().await;
        }
        let booted = hypervisors.warm.restore(&source.spec, taken.id, &self.plan.on_spawn, progress).await?;
        // If the processes were not restored, later checks do not expect them either.
        let witness = taken.before.witness.clone().filter(|_| booted.rung == Rung::Memory);
        self.source_before = Some(Before { witness, ..taken.before.clone() });
        self.source_started(origin, rung, booted, &taken.before, progress).await
    }
}

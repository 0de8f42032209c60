//! Snapshots of a running machine, and the machine taken back to them.

use std::time::Duration;

use agentiso_core::ids::SnapshotId;
use tokio::time::Instant;

use super::done::{Done, stood_still};
use super::state::{Climb, Running, Taken};
use crate::progress::Progress;
use crate::proof::before::Before;
use crate::proof::check::Origin;
use crate::proof::verdict::Finding;
use crate::spec::Rung;

impl Climb {
    pub(super) async fn snapshot(&mut self, with_memory: bool, progress: &Progress) -> Result<Done, Finding> {
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
        Ok(Done { time, detail: stood_still(pause), ..Done::default() })
    }

    pub(super) async fn snapshot_of(
        &self,
        source: &Running,
        with_memory: bool,
        progress: &Progress,
    ) -> Result<(Taken, Duration, Duration), Finding> {
        let hypervisors = self.hypervisors()?;
        let before = Before::leave(source.guest(), with_memory).await?;
        let (id, began) = (SnapshotId::random(), Instant::now());
        let pause =
            hypervisors.warm.snapshot(&source.spec, &source.machine, id, with_memory, progress).await?;
        Ok((Taken { id, before }, began.elapsed(), pause))
    }

    pub(super) async fn restore(&mut self, with_memory: bool, progress: &Progress) -> Result<Done, Finding> {
        let hypervisors = self.hypervisors()?;
        let (origin, rung, taken) = match with_memory {
            true => (Origin::MemoryRestore, Rung::Memory, &self.memory),
            false => (Origin::DiskRestore, Rung::BareTemplate, &self.disk),
        };
        let taken = taken.clone().ok_or_else(|| Finding::untried("no snapshot was taken"))?;
        let place = self.source.as_mut().ok_or_else(|| Finding::untried("no machine came up"))?;
        if let Some(machine) = place.machine.take() {
            machine.kill().await;
        }
        let booted = hypervisors.warm.restore(&place.spec, taken.id, progress).await?;
        // Of processes that did not come along nothing is expected later on, either.
        let witness = taken.before.witness.clone().filter(|_| booted.rung == Rung::Memory);
        self.source_before = Some(Before { witness, ..taken.before.clone() });
        self.came_up(origin, rung, booted, &taken.before, progress).await
    }
}

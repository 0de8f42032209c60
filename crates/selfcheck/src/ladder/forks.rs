//! Steps that fork snapshots, and a fork of a fork.

use agentiso_sys::Progress;
use agentiso_sys::files;
use agentiso_vm::{Rung, VmSpec};
use tokio::time::Instant;

use super::boots::both;
use super::outcome::{Outcome, describe_pause};
use super::state::{LadderRun, Running, TakenSnapshot};
use crate::before::Before;
use crate::check::Origin;
use crate::suite::{Parent, Subject};
use crate::verdict::Finding;

impl LadderRun {
    pub(super) async fn memory_forks(&mut self, progress: &Progress) -> Result<Outcome, Finding> {
        let taken = self.memory.clone();
        let taken = taken.ok_or_else(|| Finding::untried("no memory snapshot was taken"))?;
        let (hypervisors, specs, began) = (self.hypervisors()?, [self.spec()?, self.spec()?], Instant::now());
        for spec in &specs {
            self.branch_of_source(&taken, spec).await?;
        }
        let (warm, spawned) = (&hypervisors.warm, &self.plan.on_spawn);
        let [one, two] = &specs;
        let made = tokio::join!(
            warm.create_branch(one, spawned, progress),
            warm.create_branch(two, spawned, progress)
        );
        let (booted, vms) = both(made, specs).await?;
        let (mut done, other) =
            (Outcome::of_boot(&booted[0], Rung::Memory), Outcome::of_boot(&booted[1], Rung::Memory));
        done.time = began.elapsed();
        done.complaint = done.complaint.or(other.complaint);
        done.detail = "two at once".to_owned();
        if done.complaint.is_none() {
            let source = self.source().ok();
            let parent = parent(source.as_ref(), self.source_before.as_ref());
            let before = Some(&taken.before);
            done.checks = self.examine_both(Origin::MemoryFork, &vms, before, parent, progress).await;
        }
        let [fork, sibling] = vms;
        sibling.vm.kill().await;
        self.fork = Some(fork);
        Ok(done)
    }

    pub(super) async fn disk_fork(&mut self, progress: &Progress) -> Result<Outcome, Finding> {
        let taken = self.disk.clone().ok_or_else(|| Finding::untried("no disk snapshot was taken"))?;
        let (hypervisors, spec, began) = (self.hypervisors()?, self.spec()?, Instant::now());
        self.branch_of_source(&taken, &spec).await?;
        let booted = hypervisors.warm.create_branch(&spec, &self.plan.on_spawn, progress).await?;
        let mut done = Outcome { time: began.elapsed(), ..Outcome::of_boot(&booted, Rung::BareTemplate) };
        let fork = Running { spec, vm: booted.vm };
        if done.complaint.is_none() {
            let source = self.source().ok();
            let parent = parent(source.as_ref(), self.source_before.as_ref());
            let alone = Subject::alone(Origin::DiskFork, fork.guest());
            let subject = Subject { before: Some(&taken.before), parent, ..alone };
            done.checks = self.examine(&subject, progress).await;
        }
        fork.vm.kill().await;
        Ok(done)
    }

    /// Forks a fork, after the VM that both come from was destroyed.
    pub(super) async fn fork_of_fork(&mut self, progress: &Progress) -> Result<Outcome, Finding> {
        let fork = self.fork.clone().ok_or_else(|| Finding::untried("no fork started"))?;
        let (hypervisors, spec) = (self.hypervisors()?, self.spec()?);
        if let Some(source) = self.source.take() {
            if let Some(vm) = &source.vm {
                vm.kill().await;
            }
            files::remove_dir(&source.spec.data_dir)?;
        }
        if let Some(memory) = self.memory.take() {
            memory.before.stop(fork.guest()).await?;
        }
        let (taken, _, pause) = self.snapshot_of(&fork, true, progress).await?;
        taken.before.change(fork.guest()).await?;
        let began = Instant::now();
        hypervisors.warm.branch(&fork.spec, taken.id, &spec).await?;
        let booted = hypervisors.warm.create_branch(&spec, &self.plan.on_spawn, progress).await?;
        let mut done = Outcome { time: began.elapsed(), ..Outcome::of_boot(&booted, Rung::Memory) };
        done.detail = format!("the first VM was destroyed before; {}", describe_pause(pause));
        let child = Running { spec, vm: booted.vm };
        if done.complaint.is_none() {
            let parent = parent(Some(&fork), Some(&taken.before));
            let alone = Subject::alone(Origin::ForkOfFork, child.guest());
            let subject = Subject { before: Some(&taken.before), parent, ..alone };
            done.checks = self.examine(&subject, progress).await;
        }
        child.vm.kill().await;
        Ok(done)
    }

    async fn branch_of_source(&self, taken: &TakenSnapshot, fork: &VmSpec) -> Result<(), Finding> {
        let source = self.source.as_ref().ok_or_else(|| Finding::untried("there is nothing to fork"))?;
        Ok(self.hypervisors()?.warm.branch(&source.spec, taken.id, fork).await?)
    }
}

fn parent<'a>(running: Option<&'a Running>, before: Option<&'a Before>) -> Option<Parent<'a>> {
    Some(Parent { guest: running?.guest(), before: before? })
}

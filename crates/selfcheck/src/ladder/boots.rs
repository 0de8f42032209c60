//! Steps that start VMs from an image or from their existing disk.

use agentiso_host::Booted;
use agentiso_host::{Hypervisor, HypervisorSettings};
use agentiso_sys::Progress;
use agentiso_vm::{Rung, VmSpec};
use tokio::time::Instant;

use super::outcome::Outcome;
use super::state::{Hypervisors, LadderRun, Running, SourceWorkspace};
use crate::before::Before;
use crate::check::Origin;
use crate::suite::Subject;
use crate::verdict::Finding;

#[derive(Clone, Copy)]
pub(super) enum Template {
    Bare,
    Image,
}

impl LadderRun {
    pub(super) async fn accelerator(&mut self) -> Result<Outcome, Finding> {
        let began = Instant::now();
        let with = |templates| HypervisorSettings { templates, ..self.plan.settings.clone() };
        let cold = Hypervisor::open(with(false)).await?;
        let warm = Hypervisor::open(with(true)).await?;
        let facts = warm.facts();
        self.hypervisors = Some(Hypervisors { cold, warm });
        let (chosen, why) = (facts.accelerator.as_str(), facts.accelerator_reason);
        let detail = format!("{chosen}, {why}; {}", facts.qemu_version);
        Ok(Outcome { time: began.elapsed(), detail, ..Outcome::default() })
    }

    pub(super) async fn cold_boot(&mut self, progress: &Progress) -> Result<Outcome, Finding> {
        let (hypervisors, spec) = (self.hypervisors()?, self.spec()?);
        let booted = hypervisors.cold.create(&spec, &self.plan.on_spawn, progress).await?;
        let mut done = Outcome::of_boot(&booted, Rung::ColdBoot);
        self.source = Some(SourceWorkspace { spec: spec.clone(), vm: Some(booted.vm.clone()) });
        let running = Running { spec, vm: booted.vm };
        done.checks = self.examine(&Subject::alone(Origin::ColdBoot, running.guest()), progress).await;
        Ok(done)
    }

    pub(super) async fn make_template(
        &self,
        template: Template,
        progress: &Progress,
    ) -> Result<Outcome, Finding> {
        let (hypervisors, plan, began) = (self.hypervisors()?, &self.plan, Instant::now());
        let templates = hypervisors.warm.templates();
        match template {
            Template::Bare => templates.ensure_bare(plan.resources, progress).await?,
            Template::Image => {
                templates.ensure_image(&plan.image, plan.resources, plan.init_mode, progress).await?
            }
        };
        Ok(Outcome { time: began.elapsed(), ..Outcome::default() })
    }

    /// Stops the booted VM and starts it again from its disk.
    pub(super) async fn bare_template(&mut self, progress: &Progress) -> Result<Outcome, Finding> {
        let (hypervisors, old) = (self.hypervisors()?, self.source()?);
        let before = Before::leave(old.guest(), false).await?;
        self.stop_source().await;
        let booted = hypervisors.warm.start(&old.spec, &self.plan.on_spawn, progress).await?;
        self.source_started(Origin::BareTemplate, Rung::BareTemplate, booted, &before, progress).await
    }

    pub(super) async fn image_template(&mut self, progress: &Progress) -> Result<Outcome, Finding> {
        let hypervisors = self.hypervisors()?;
        let specs = [self.spec()?, self.spec()?];
        let [one, two] = &specs;
        let made = tokio::join!(
            hypervisors.warm.create(one, &self.plan.on_spawn, progress),
            hypervisors.warm.create(two, &self.plan.on_spawn, progress)
        );
        let (booted, vms) = both(made, specs).await?;
        let mut done = Outcome::of_boot(&booted[0], Rung::ImageTemplate);
        let other = Outcome::of_boot(&booted[1], Rung::ImageTemplate);
        done.time = done.time.max(other.time);
        done.complaint = done.complaint.or(other.complaint);
        done.detail = "two at once".to_owned();
        if done.complaint.is_none() {
            done.checks = self.examine_both(Origin::ImageTemplate, &vms, None, None, progress).await;
        }
        let [source, sibling] = vms;
        sibling.vm.kill().await;
        if let Ok(old) = self.source() {
            old.vm.kill().await;
        }
        self.source = Some(SourceWorkspace { spec: source.spec, vm: Some(source.vm) });
        Ok(done)
    }

    /// Prepares a VM under another name, as the warm pool does, and hands it over.
    pub(super) async fn pool(&mut self, progress: &Progress) -> Result<Outcome, Finding> {
        let (hypervisors, sibling, spec) = (self.hypervisors()?, self.source()?, self.spec()?);
        let mut nobody = spec.clone();
        nobody.identity.hostname = "standby".to_owned();
        let booted = hypervisors.warm.create(&nobody, &self.plan.on_spawn, progress).await?;
        let began = Instant::now();
        let running = Running { spec, vm: booted.vm };
        let handed_over = hypervisors.warm.identify(&running.spec, &running.vm).await;
        let mut done = Outcome { time: began.elapsed(), ..Outcome::default() };
        if handed_over.is_ok() {
            let siblings = vec![sibling.guest()];
            let subject = Subject { siblings, ..Subject::alone(Origin::Pool, running.guest()) };
            done.checks = self.examine(&subject, progress).await;
        }
        running.vm.kill().await;
        handed_over?;
        Ok(done)
    }
}

/// Returns two VMs or none: if one failed to start, the other is killed.
pub(super) async fn both<E: std::error::Error>(
    made: (Result<Booted, E>, Result<Booted, E>),
    specs: [VmSpec; 2],
) -> Result<([Booted; 2], [Running; 2]), Finding> {
    let booted = match made {
        (Ok(one), Ok(two)) => [one, two],
        (Ok(one), Err(error)) | (Err(error), Ok(one)) => {
            one.vm.kill().await;
            return Err(error.into());
        }
        (Err(error), Err(_)) => return Err(error.into()),
    };
    let [one, two] = specs;
    let vms =
        [Running { spec: one, vm: booted[0].vm.clone() }, Running { spec: two, vm: booted[1].vm.clone() }];
    Ok((booted, vms))
}

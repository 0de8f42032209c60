//! Every way to bring a machine up, tried one after the other, and the suite after each.
//!
//! ```text
//! cold boot ─▶ bare template ─▶ image template (two) ─▶ disk snapshot, restore ─▶ memory snapshot, restore
//!                                                            │                        │
//!                                                        disk fork               two memory forks ─▶ fork of a fork
//! ```
//!
//! A step that fails does not end the climb: what comes after it is tried with what there is.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use agentiso_core::address::{AddressPool, Subnet, mac_for};
use agentiso_core::config::InitMode;
use agentiso_core::ids::{SnapshotId, WorkspaceId};
use agentiso_core::resources::Resources;
use tokio::time::Instant;

use super::before::Before;
use super::check::Origin;
use super::entropy::Seen;
use super::guest::Guest;
use super::step::{Step, StepResult};
use super::suite::{Parent, Subject, examine};
use super::verdict::{CheckResult, Finding, Verdict, merge};
use crate::agent::NetworkIdentity;
use crate::files;
use crate::hypervisor::{Hypervisor, HypervisorSettings};
use crate::machine::Machine;
use crate::progress::Progress;
use crate::spec::{BaseImage, Booted, Identity, MachineSpec, OnSpawn, Rung};

/// What the guest's processes and its file system get to end in order.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(30);

/// What is climbed with.
#[derive(Clone, Debug)]
pub struct Plan {
    /// With directories that nobody else uses. Whether templates are switched on in there does not matter.
    pub settings: HypervisorSettings,
    pub image: BaseImage,
    pub resources: Resources,
    pub init_mode: InitMode,
    pub subnet: Subnet,
    pub dns: Vec<Ipv4Addr>,
    /// Holds the directories of all machines.
    pub data_dir: PathBuf,
    /// Told of every machine; whoever drops a climb must end them.
    pub on_spawn: OnSpawn,
}

/// A climb under way. Dropping it lets go of its machines, which run on; [`Climb::finish`] ends them.
#[derive(Debug)]
pub struct Climb {
    plan: Plan,
    addresses: AddressPool,
    seen: Seen,
    hypervisors: Option<Hypervisors>,
    /// The machine that is snapshot, restored and forked.
    source: Option<Place>,
    disk: Option<Taken>,
    memory: Option<Taken>,
    /// The source as it is since it was restored.
    source_before: Option<Before>,
    fork: Option<Running>,
}

/// The same host twice: one boots every machine, the other has templates.
#[derive(Clone, Debug)]
struct Hypervisors {
    cold: Hypervisor,
    warm: Hypervisor,
}

#[derive(Clone, Debug)]
struct Running {
    spec: MachineSpec,
    machine: Machine,
}

impl Running {
    fn guest(&self) -> Guest<'_> {
        Guest { spec: &self.spec, machine: &self.machine }
    }
}

/// A disk, and the machine on it if that runs.
#[derive(Debug)]
struct Place {
    spec: MachineSpec,
    machine: Option<Machine>,
}

#[derive(Clone, Debug)]
struct Taken {
    id: SnapshotId,
    before: Before,
}

/// A step that was taken.
#[derive(Default)]
struct Done {
    time: Duration,
    detail: String,
    /// It was taken, but not as it should have been.
    complaint: Option<String>,
    checks: Vec<CheckResult>,
}

impl Done {
    /// From how a machine came up. What came up another way than it should is not examined.
    fn by(booted: &Booted, wanted: Rung) -> Self {
        let complaint = (booted.rung != wanted).then(|| {
            let why = booted.warning.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            format!("it came up by {} instead of {wanted}{why}", booted.rung)
        });
        Self { time: booted.boot_time, complaint, ..Self::default() }
    }

    fn verdict(&self) -> Verdict {
        let failed = self.checks.iter().filter_map(|result| match &result.verdict {
            Verdict::Failed { reason } => Some(format!("{}: {reason}", result.check)),
            Verdict::Passed | Verdict::Skipped { .. } => None,
        });
        let reasons: Vec<_> = self.complaint.iter().cloned().chain(failed).collect();
        match reasons.is_empty() {
            true => Verdict::Passed,
            false => Verdict::Failed { reason: reasons.join("; ") },
        }
    }
}

impl Climb {
    pub fn new(plan: Plan) -> Self {
        Self {
            addresses: AddressPool::new(plan.subnet),
            plan,
            seen: Seen::default(),
            hypervisors: None,
            source: None,
            disk: None,
            memory: None,
            source_before: None,
            fork: None,
        }
    }

    /// Takes a step. They are to be taken in the order of [`Step::ALL`].
    pub async fn take(&mut self, step: Step, progress: &Progress) -> StepResult {
        let began = Instant::now();
        let taken = match step {
            Step::Accelerator => self.accelerator().await,
            Step::ColdBoot => self.cold_boot(progress).await,
            Step::MakeBareTemplate => self.make_template(Template::Bare, progress).await,
            Step::BareTemplate => self.bare_template(progress).await,
            Step::MakeImageTemplate => self.make_template(Template::Image, progress).await,
            Step::ImageTemplate => self.image_template(progress).await,
            Step::DiskSnapshot => self.snapshot(false, progress).await,
            Step::DiskRestore => self.restore(false, progress).await,
            Step::MemorySnapshot => self.snapshot(true, progress).await,
            Step::MemoryRestore => self.restore(true, progress).await,
            Step::MemoryForks => self.memory_forks(progress).await,
            Step::DiskFork => self.disk_fork(progress).await,
            Step::ForkOfFork => self.fork_of_fork(progress).await,
        };
        match taken {
            Ok(done) => {
                let (verdict, Done { time, detail, checks, .. }) = (done.verdict(), done);
                StepResult { step, verdict, time, detail, checks }
            }
            Err(finding) => {
                let (verdict, time) = (Err(finding).into(), began.elapsed());
                StepResult { step, verdict, time, detail: String::new(), checks: Vec::new() }
            }
        }
    }

    /// Ends the machines that still run.
    pub async fn finish(self) {
        let source = self.source.and_then(|source| source.machine);
        for machine in source.into_iter().chain(self.fork.map(|fork| fork.machine)) {
            machine.kill().await;
        }
    }

    fn hypervisors(&self) -> Result<Hypervisors, Finding> {
        self.hypervisors.clone().ok_or_else(|| Finding::untried("there is no accelerator"))
    }

    /// The machine to go on with.
    fn source(&self) -> Result<Running, Finding> {
        let place = self.source.as_ref().ok_or_else(|| Finding::untried("no machine came up"))?;
        match &place.machine {
            Some(machine) => Ok(Running { spec: place.spec.clone(), machine: machine.clone() }),
            None => Err(Finding::untried("the machine did not come up again")),
        }
    }

    fn spec(&mut self) -> Result<MachineSpec, Finding> {
        let id = WorkspaceId::random();
        let (plan, address) = (&self.plan, self.addresses.take()?);
        Ok(MachineSpec {
            id,
            resources: plan.resources,
            base_image: plan.image.clone(),
            data_dir: plan.data_dir.join(id.to_string()),
            run_dir: plan.settings.run_dir.join(id.short()),
            init_mode: plan.init_mode,
            identity: Identity {
                hostname: format!("proof-{}", id.short()),
                machine_id: id.as_uuid().simple().to_string(),
                network: Some(NetworkIdentity {
                    mac: mac_for(&id),
                    address,
                    prefix: plan.subnet.prefix,
                    gateway: plan.subnet.gateway,
                    dns: plan.dns.clone(),
                }),
            },
            on_spawn: plan.on_spawn.clone(),
        })
    }

    async fn accelerator(&mut self) -> Result<Done, Finding> {
        let began = Instant::now();
        let with = |templates| HypervisorSettings { templates, ..self.plan.settings.clone() };
        let cold = Hypervisor::open(with(false)).await?;
        let warm = Hypervisor::open(with(true)).await?;
        let facts = warm.facts();
        self.hypervisors = Some(Hypervisors { cold, warm });
        let (chosen, why) = (facts.accelerator.as_str(), facts.accelerator_reason);
        let detail = format!("{chosen}, {why}; {}", facts.qemu_version);
        Ok(Done { time: began.elapsed(), detail, ..Done::default() })
    }

    async fn cold_boot(&mut self, progress: &Progress) -> Result<Done, Finding> {
        let (hypervisors, spec) = (self.hypervisors()?, self.spec()?);
        let booted = hypervisors.cold.create(&spec, progress).await?;
        let mut done = Done::by(&booted, Rung::ColdBoot);
        self.source = Some(Place { spec: spec.clone(), machine: Some(booted.machine.clone()) });
        let running = Running { spec, machine: booted.machine };
        done.checks = self.examine(&Subject::alone(Origin::ColdBoot, running.guest()), progress).await;
        Ok(done)
    }

    async fn make_template(&self, template: Template, progress: &Progress) -> Result<Done, Finding> {
        let (hypervisors, plan, began) = (self.hypervisors()?, &self.plan, Instant::now());
        let templates = hypervisors.warm.templates();
        match template {
            Template::Bare => templates.ensure_bare(plan.resources, progress).await?,
            Template::Image => {
                templates.ensure_image(&plan.image, plan.resources, plan.init_mode, progress).await?
            }
        };
        Ok(Done { time: began.elapsed(), ..Done::default() })
    }

    /// Stops the machine that was booted and starts it again, from the disk it has.
    async fn bare_template(&mut self, progress: &Progress) -> Result<Done, Finding> {
        let (hypervisors, old) = (self.hypervisors()?, self.source()?);
        let before = Before::leave(old.guest(), false).await?;
        self.stop_source().await;
        let booted = hypervisors.warm.start(&old.spec, progress).await?;
        self.came_up(Origin::BareTemplate, Rung::BareTemplate, booted, &before, progress).await
    }

    async fn image_template(&mut self, progress: &Progress) -> Result<Done, Finding> {
        let hypervisors = self.hypervisors()?;
        let specs = [self.spec()?, self.spec()?];
        let [one, two] = &specs;
        let made =
            tokio::join!(hypervisors.warm.create(one, progress), hypervisors.warm.create(two, progress));
        let (booted, machines) = both(made, specs).await?;
        let mut done = Done::by(&booted[0], Rung::ImageTemplate);
        let other = Done::by(&booted[1], Rung::ImageTemplate);
        done.time = done.time.max(other.time);
        done.complaint = done.complaint.or(other.complaint);
        done.detail = "two at once".to_owned();
        if done.complaint.is_none() {
            done.checks = self.examine_both(Origin::ImageTemplate, &machines, None, None, progress).await;
        }
        let [source, sibling] = machines;
        sibling.machine.kill().await;
        if let Ok(old) = self.source() {
            old.machine.kill().await;
        }
        self.source = Some(Place { spec: source.spec, machine: Some(source.machine) });
        Ok(done)
    }

    async fn snapshot(&mut self, with_memory: bool, progress: &Progress) -> Result<Done, Finding> {
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

    async fn snapshot_of(
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

    async fn restore(&mut self, with_memory: bool, progress: &Progress) -> Result<Done, Finding> {
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

    /// The source came up, one way or another.
    async fn came_up(
        &mut self,
        origin: Origin,
        wanted: Rung,
        booted: Booted,
        before: &Before,
        progress: &Progress,
    ) -> Result<Done, Finding> {
        let mut done = Done::by(&booted, wanted);
        if let Some(place) = &mut self.source {
            place.machine = Some(booted.machine);
        }
        if done.complaint.is_none() {
            let source = self.source()?;
            let subject = Subject { before: Some(before), ..Subject::alone(origin, source.guest()) };
            done.checks = self.examine(&subject, progress).await;
        }
        Ok(done)
    }

    async fn memory_forks(&mut self, progress: &Progress) -> Result<Done, Finding> {
        let taken = self.memory.clone();
        let taken = taken.ok_or_else(|| Finding::untried("no memory snapshot was taken"))?;
        let (hypervisors, specs, began) = (self.hypervisors()?, [self.spec()?, self.spec()?], Instant::now());
        for spec in &specs {
            self.branch_of_source(&taken, spec).await?;
        }
        let warm = &hypervisors.warm;
        let [one, two] = &specs;
        let made = tokio::join!(warm.create_branch(one, progress), warm.create_branch(two, progress));
        let (booted, machines) = both(made, specs).await?;
        let (mut done, other) = (Done::by(&booted[0], Rung::Memory), Done::by(&booted[1], Rung::Memory));
        done.time = began.elapsed();
        done.complaint = done.complaint.or(other.complaint);
        done.detail = "two at once".to_owned();
        if done.complaint.is_none() {
            let source = self.source().ok();
            let parent = parent(source.as_ref(), self.source_before.as_ref());
            let before = Some(&taken.before);
            done.checks = self.examine_both(Origin::MemoryFork, &machines, before, parent, progress).await;
        }
        let [fork, sibling] = machines;
        sibling.machine.kill().await;
        self.fork = Some(fork);
        Ok(done)
    }

    async fn disk_fork(&mut self, progress: &Progress) -> Result<Done, Finding> {
        let taken = self.disk.clone().ok_or_else(|| Finding::untried("no disk snapshot was taken"))?;
        let (hypervisors, spec, began) = (self.hypervisors()?, self.spec()?, Instant::now());
        self.branch_of_source(&taken, &spec).await?;
        let booted = hypervisors.warm.create_branch(&spec, progress).await?;
        let mut done = Done { time: began.elapsed(), ..Done::by(&booted, Rung::BareTemplate) };
        let fork = Running { spec, machine: booted.machine };
        if done.complaint.is_none() {
            let source = self.source().ok();
            let parent = parent(source.as_ref(), self.source_before.as_ref());
            let alone = Subject::alone(Origin::DiskFork, fork.guest());
            let subject = Subject { before: Some(&taken.before), parent, ..alone };
            done.checks = self.examine(&subject, progress).await;
        }
        fork.machine.kill().await;
        Ok(done)
    }

    /// Forks a fork, after the machine that both come from was destroyed.
    async fn fork_of_fork(&mut self, progress: &Progress) -> Result<Done, Finding> {
        let fork = self.fork.clone().ok_or_else(|| Finding::untried("no fork came up"))?;
        let (hypervisors, spec) = (self.hypervisors()?, self.spec()?);
        if let Some(source) = self.source.take() {
            if let Some(machine) = &source.machine {
                machine.kill().await;
            }
            files::remove_dir(&source.spec.data_dir)?;
        }
        if let Some(memory) = self.memory.take() {
            memory.before.dismiss(fork.guest()).await?;
        }
        let (taken, _, pause) = self.snapshot_of(&fork, true, progress).await?;
        taken.before.change(fork.guest()).await?;
        let began = Instant::now();
        hypervisors.warm.branch(&fork.spec, taken.id, &spec).await?;
        let booted = hypervisors.warm.create_branch(&spec, progress).await?;
        let mut done = Done { time: began.elapsed(), ..Done::by(&booted, Rung::Memory) };
        done.detail = format!("the first machine was destroyed before; {}", stood_still(pause));
        let child = Running { spec, machine: booted.machine };
        if done.complaint.is_none() {
            let parent = parent(Some(&fork), Some(&taken.before));
            let alone = Subject::alone(Origin::ForkOfFork, child.guest());
            let subject = Subject { before: Some(&taken.before), parent, ..alone };
            done.checks = self.examine(&subject, progress).await;
        }
        child.machine.kill().await;
        Ok(done)
    }

    async fn branch_of_source(&self, taken: &Taken, fork: &MachineSpec) -> Result<(), Finding> {
        let source = self.source.as_ref().ok_or_else(|| Finding::untried("there is nothing to fork"))?;
        Ok(self.hypervisors()?.warm.branch(&source.spec, taken.id, fork).await?)
    }

    async fn stop_source(&mut self) {
        if let Some(machine) = self.source.as_mut().and_then(|source| source.machine.take()) {
            machine.shutdown(SHUTDOWN_GRACE).await;
        }
    }

    async fn examine(&self, subject: &Subject<'_>, progress: &Progress) -> Vec<CheckResult> {
        progress.report("examining the machine", None);
        examine(subject, &self.seen).await
    }

    /// Examines two machines, each with the other as its sibling.
    async fn examine_both(
        &self,
        origin: Origin,
        machines: &[Running; 2],
        before: Option<&Before>,
        parent: Option<Parent<'_>>,
        progress: &Progress,
    ) -> Vec<CheckResult> {
        let subject = |one: usize, other: usize| Subject {
            origin,
            guest: machines[one].guest(),
            siblings: vec![machines[other].guest()],
            before,
            parent,
        };
        let first = self.examine(&subject(0, 1), progress).await;
        merge(first, self.examine(&subject(1, 0), progress).await)
    }
}

#[derive(Clone, Copy)]
enum Template {
    Bare,
    Image,
}

/// Two machines, or none: if one did not come up, the other is ended.
async fn both<E: std::error::Error>(
    made: (Result<Booted, E>, Result<Booted, E>),
    specs: [MachineSpec; 2],
) -> Result<([Booted; 2], [Running; 2]), Finding> {
    let booted = match made {
        (Ok(one), Ok(two)) => [one, two],
        (Ok(one), Err(error)) | (Err(error), Ok(one)) => {
            one.machine.kill().await;
            return Err(error.into());
        }
        (Err(error), Err(_)) => return Err(error.into()),
    };
    let [one, two] = specs;
    let machines = [
        Running { spec: one, machine: booted[0].machine.clone() },
        Running { spec: two, machine: booted[1].machine.clone() },
    ];
    Ok((booted, machines))
}

fn parent<'a>(running: Option<&'a Running>, before: Option<&'a Before>) -> Option<Parent<'a>> {
    Some(Parent { guest: running?.guest(), before: before? })
}

fn stood_still(pause: Duration) -> String {
    format!("the source stood still for {:.1} ms", pause.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::super::check::Check;
    use super::*;

    #[test]
    fn a_step_fails_with_all_reasons_and_passes_with_none() {
        let check = |check, verdict| CheckResult { check, verdict, time: Duration::ZERO };
        let skipped = check(Check::PythonEntropy, Verdict::Skipped { reason: "no python3".to_owned() });
        let failed = |reason: &str| Verdict::Failed { reason: reason.to_owned() };
        let mut done =
            Done { checks: vec![check(Check::Clock, Verdict::Passed), skipped], ..Done::default() };
        assert_eq!(done.verdict(), Verdict::Passed);
        done.checks.push(check(Check::Clock, failed("an hour behind")));
        done.checks.push(check(Check::Network, failed("no address")));
        assert_eq!(done.verdict(), failed("clock: an hour behind; network: no address"));
        done.complaint = Some("it came up late".to_owned());
        assert!(done.verdict().reason().is_some_and(|reason| reason.starts_with("it came up late; clock")));
    }
}

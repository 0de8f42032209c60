//! The state of a run over the boot ladder, and the order of its steps.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use agentiso_core::address::{AddressPool, Subnet, mac_for};
use agentiso_core::config::InitMode;
use agentiso_core::ids::{SnapshotId, WorkspaceId};
use agentiso_core::resources::Resources;
use agentiso_host::Booted;
use agentiso_host::Vm;
use agentiso_host::{Hypervisor, HypervisorSettings};
use agentiso_sys::Progress;
use agentiso_vm::{BaseImage, Card, Identity, NetworkIdentity, OnSpawn, Rung, VmSpec};
use tokio::time::Instant;

use super::boots::Template;
use super::outcome::Outcome;
use crate::before::Before;
use crate::check::Origin;
use crate::entropy::Seen;
use crate::guest::Guest;
use crate::step::{Step, StepResult};
use crate::suite::{Parent, Subject, examine};
use crate::verdict::{CheckResult, Finding, merge};

/// The time for the guest's processes and its file system to end in order.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(30);

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its directories must not be used by others. Its switch for templates is ignored.
    pub settings: HypervisorSettings,
    pub image: BaseImage,
    pub resources: Resources,
    pub init_mode: InitMode,
    pub subnet: Subnet,
    pub dns: Vec<Ipv4Addr>,
    /// The directory that holds those of all VMs.
    pub data_dir: PathBuf,
    /// Called for every VM; code that drops a [`LadderRun`] must end them.
    pub on_spawn: OnSpawn,
}

/// A run over the boot ladder. Dropping it leaves its VMs running; [`LadderRun::finish`] ends them.
#[derive(Debug)]
pub struct LadderRun {
    pub(super) plan: Plan,
    pub(super) addresses: AddressPool,
    pub(super) seen: Seen,
    pub(super) hypervisors: Option<Hypervisors>,
    /// The VM that is snapshotted, restored and forked.
    pub(super) source: Option<SourceWorkspace>,
    pub(super) disk: Option<TakenSnapshot>,
    pub(super) memory: Option<TakenSnapshot>,
    /// The state of the source since it was restored.
    pub(super) source_before: Option<Before>,
    pub(super) fork: Option<Running>,
}

/// The same host twice: `cold` boots every VM, `warm` uses templates.
#[derive(Clone, Debug)]
pub(super) struct Hypervisors {
    pub(super) cold: Hypervisor,
    pub(super) warm: Hypervisor,
}

#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) spec: VmSpec,
    pub(super) vm: Vm,
}

impl Running {
    pub(super) fn guest(&self) -> Guest<'_> {
        Guest { spec: &self.spec, vm: &self.vm }
    }
}

/// A workspace's disk, and its VM if it runs.
#[derive(Debug)]
pub(super) struct SourceWorkspace {
    pub(super) spec: VmSpec,
    pub(super) vm: Option<Vm>,
}

#[derive(Clone, Debug)]
pub(super) struct TakenSnapshot {
    pub(super) id: SnapshotId,
    pub(super) before: Before,
}

impl LadderRun {
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

    /// Performs a step. The steps must be taken in the order of [`Step::ALL`].
    pub async fn take(&mut self, step: Step, progress: &Progress) -> StepResult {
        let began = Instant::now();
        let taken = match step {
            Step::Accelerator => self.accelerator().await,
            Step::ColdBoot => self.cold_boot(progress).await,
            Step::MakeBareTemplate => self.make_template(Template::Bare, progress).await,
            Step::BareTemplate => self.bare_template(progress).await,
            Step::MakeImageTemplate => self.make_template(Template::Image, progress).await,
            Step::ImageTemplate => self.image_template(progress).await,
            Step::Pool => self.pool(progress).await,
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
                let (verdict, Outcome { time, detail, checks, .. }) = (done.verdict(), done);
                StepResult { step, verdict, time, detail, checks }
            }
            Err(finding) => {
                let (verdict, time) = (Err(finding).into(), began.elapsed());
                StepResult { step, verdict, time, detail: String::new(), checks: Vec::new() }
            }
        }
    }

    /// Ends the VMs that still run.
    pub async fn finish(self) {
        let source = self.source.and_then(|source| source.vm);
        for vm in source.into_iter().chain(self.fork.map(|fork| fork.vm)) {
            vm.kill().await;
        }
    }

    pub(super) fn hypervisors(&self) -> Result<Hypervisors, Finding> {
        self.hypervisors.clone().ok_or_else(|| Finding::untried("there is no accelerator"))
    }

    /// The VM for the next steps.
    pub(super) fn source(&self) -> Result<Running, Finding> {
        let source = self.source.as_ref().ok_or_else(|| Finding::untried("no VM started"))?;
        match &source.vm {
            Some(vm) => Ok(Running { spec: source.spec.clone(), vm: vm.clone() }),
            None => Err(Finding::untried("the VM did not start again")),
        }
    }

    pub(super) fn spec(&mut self) -> Result<VmSpec, Finding> {
        let id = WorkspaceId::random();
        let (plan, address) = (&self.plan, self.addresses.take()?);
        Ok(VmSpec {
            id,
            resources: plan.resources,
            base_image: plan.image.clone(),
            data_dir: plan.data_dir.join(id.to_string()),
            run_dir: plan.settings.run_dir.join(id.short()),
            card: Card::Socket(plan.settings.run_dir.join(format!("n-{}.d/s", id.short()))),
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
        })
    }

    pub(super) async fn stop_source(&mut self) {
        if let Some(vm) = self.source.as_mut().and_then(|source| source.vm.take()) {
            vm.shutdown(SHUTDOWN_GRACE).await;
        }
    }

    /// Records that the source was started, and examines it.
    pub(super) async fn source_started(
        &mut self,
        origin: Origin,
        wanted: Rung,
        booted: Booted,
        before: &Before,
        progress: &Progress,
    ) -> Result<Outcome, Finding> {
        let mut done = Outcome::of_boot(&booted, wanted);
        if let Some(source) = &mut self.source {
            source.vm = Some(booted.vm);
        }
        if done.complaint.is_none() {
            let source = self.source()?;
            let subject = Subject { before: Some(before), ..Subject::alone(origin, source.guest()) };
            done.checks = self.examine(&subject, progress).await;
        }
        Ok(done)
    }

    pub(super) async fn examine(&self, subject: &Subject<'_>, progress: &Progress) -> Vec<CheckResult> {
        progress.report("checking the VM", None);
        examine(subject, &self.seen).await
    }

    /// Examines two VMs, each with the other as its sibling.
    pub(super) async fn examine_both(
        &self,
        origin: Origin,
        vms: &[Running; 2],
        before: Option<&Before>,
        parent: Option<Parent<'_>>,
        progress: &Progress,
    ) -> Vec<CheckResult> {
        let subject = |one: usize, other: usize| Subject {
            origin,
            guest: vms[one].guest(),
            siblings: vec![vms[other].guest()],
            before,
            parent,
        };
        let first = self.examine(&subject(0, 1), progress).await;
        merge(first, self.examine(&subject(1, 0), progress).await)
    }
}

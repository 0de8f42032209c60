//! Real VMs: QEMU through `agentiso-host`, with kernels and images from `agentiso-image`.
//!
//! [`artefacts`] finds the files that VMs boot from, and [`facts`] tells people what was found.

mod artefacts;
mod facts;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agentiso_core::config::{Config, Jail};
use agentiso_core::ids::SnapshotId;
use agentiso_core::memory::HostMemory;
use agentiso_core::names::ImageName;
use agentiso_core::resources::Resources;
use agentiso_core::space::HostSpace;
use agentiso_disk::{DiskError, Qcow2Storage};
use agentiso_host::carry;
use agentiso_host::strays;
use agentiso_host::{Hypervisor, HypervisorSettings, RunningVm};
use agentiso_sys::cgroup::{CgroupError, Cgroups};
use agentiso_sys::files;
use agentiso_sys::process::Process;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::vms::{
    About, Arrival, AttachFailure, BootFailure, Booted, Carried, CarryFailure, DiskSnapshot, EraseFailure,
    Exported, HostFacts, ImageFailure, ImageRef, Imported, OnSpawn, Origin, Progress, SizesOf, SnapshotDiff,
    SnapshotFailure, Stray, Target, TemplateInfo, Vm, VmRecord, VmSpec, Vms, VolumeSizes,
};

/// A killed process is gone as soon as the kernel has taken back its memory.
const KILL_DEADLINE: Duration = Duration::from_secs(20);

const MIB: u64 = 1 << 20;

/// VMs of this host. QEMU, the kernel and the accelerator are looked for at the first use: a daemon must answer
/// before that, and missing files may be built while it runs.
#[derive(Debug)]
pub struct QemuVms {
    config: Arc<Config>,
    hypervisor: OnceCell<Hypervisor>,
    /// Set up only once, because that may move this process into another cgroup.
    cgroups: OnceLock<Result<Cgroups, CgroupError>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BootSource {
    /// From a fresh disk of its image.
    Create,
    /// From the disk it has.
    Start,
    /// From the disk of a snapshot, and its memory if there is one.
    Restore(SnapshotId),
    /// From the disk that a branch gave it.
    Branch,
}

impl QemuVms {
    pub fn new(config: Config) -> Self {
        Self { config: Arc::new(config), hypervisor: OnceCell::new(), cgroups: OnceLock::new() }
    }

    fn cgroups(&self) -> &Result<Cgroups, CgroupError> {
        self.cgroups.get_or_init(|| {
            let found = Cgroups::set_up(&self.config.paths.run);
            if let Err(error) = &found {
                tracing::info!(%error, "VMs run without cgroups");
            }
            found
        })
    }

    /// Refuses to start anything if cgroups are required and not available. Running VMs are left alone.
    fn may_start(&self) -> Result<(), BootFailure> {
        match self.cgroups() {
            Err(error) if self.config.resources.cgroup_required => Err(BootFailure::HostUnfit {
                reason: format!(
                    "resources.cgroup_required is true, but {error}; either {}, or set the key to false",
                    error.fix()
                ),
            }),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn hypervisor(&self) -> Result<&Hypervisor, BootFailure> {
        self.hypervisor
            .get_or_try_init(|| async {
                let unfit = |reason: String| BootFailure::HostUnfit { reason };
                let boot =
                    artefacts::boot_files(&self.config).await.map_err(|error| unfit(error.to_string()))?;
                let (config, paths) = (&self.config, &self.config.paths);
                let settings = HypervisorSettings {
                    qemu_binary: config.vm.qemu_binary.clone(),
                    accelerator: config.vm.accelerator,
                    kernel: boot.kernel,
                    initrd: boot.initrd,
                    kernel_append: config.vm.kernel_append.clone(),
                    boot_timeout: Duration::from_secs(config.vm.boot_timeout_secs),
                    templates_dir: agentiso_host::templates_dir(&paths.templates, &paths.own_templates()),
                    templates: config.vm.templates,
                    run_dir: paths.run.clone(),
                    probe_file: paths.probe_file(),
                    cgroups: self.cgroups().as_ref().ok().cloned(),
                    jail: config.vm.jail,
                    nested: config.vm.nested,
                };
                let opened = Hypervisor::open(settings).await.map_err(|error| unfit(error.to_string()))?;
                let facts = opened.facts();
                if !facts.jail.holds() && config.vm.jail != Jail::Off {
                    tracing::warn!(reason = %facts.jail_reason, "VMs run without a jail");
                }
                Ok(opened)
            })
            .await
    }

    async fn boot(
        &self,
        spec: &VmSpec,
        source: BootSource,
        spawned: OnSpawn,
        progress: &Progress,
    ) -> Result<Booted, BootFailure> {
        self.may_start()?;
        let hypervisor = self.hypervisor().await?;
        let booted = match source {
            BootSource::Create => hypervisor.create(spec, &spawned, progress).await?,
            BootSource::Start => hypervisor.start(spec, &spawned, progress).await?,
            BootSource::Restore(snapshot) => hypervisor.restore(spec, snapshot, &spawned, progress).await?,
            BootSource::Branch => hypervisor.create_branch(spec, &spawned, progress).await?,
        };
        Ok(Booted {
            vm: Arc::new(RunningVm::new(hypervisor, spec, booted.vm)),
            rung: booted.rung,
            boot_time: booted.boot_time,
            warning: booted.warning,
        })
    }

    fn processes_of(&self, wanted: impl Fn(&Stray) -> bool) -> Vec<Stray> {
        match strays::find_strays(&self.config.paths.run, &HashSet::new()) {
            Ok(found) => found.into_iter().filter(wanted).collect(),
            Err(error) => {
                tracing::error!(%error, "cannot search the host's processes");
                Vec::new()
            }
        }
    }
}

impl Vms for QemuVms {
    fn image(&self, name: &ImageName) -> Result<ImageRef, ImageFailure> {
        artefacts::image(&self.config, name)
    }

    fn create<'a>(
        &'a self,
        spec: &'a VmSpec,
        spawned: OnSpawn,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>> {
        self.boot(spec, BootSource::Create, spawned, progress).boxed()
    }

    fn start<'a>(
        &'a self,
        spec: &'a VmSpec,
        spawned: OnSpawn,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>> {
        self.boot(spec, BootSource::Start, spawned, progress).boxed()
    }

    fn restore<'a>(
        &'a self,
        spec: &'a VmSpec,
        snapshot: SnapshotId,
        spawned: OnSpawn,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>> {
        self.boot(spec, BootSource::Restore(snapshot), spawned, progress).boxed()
    }

    fn branch<'a>(
        &'a self,
        source: &'a VmSpec,
        snapshot: SnapshotId,
        fork: &'a VmSpec,
    ) -> BoxFuture<'a, Result<(), SnapshotFailure>> {
        async move {
            let hypervisor = self.hypervisor().await.map_err(unusable)?;
            Ok(hypervisor.branch(source, snapshot, fork).await?)
        }
        .boxed()
    }

    fn create_branch<'a>(
        &'a self,
        fork: &'a VmSpec,
        spawned: OnSpawn,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>> {
        self.boot(fork, BootSource::Branch, spawned, progress).boxed()
    }

    fn export<'a>(
        &'a self,
        branch: &'a VmSpec,
        about: &'a About,
        target: &'a Target,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Exported, CarryFailure>> {
        async move {
            let hypervisor = self.hypervisor().await.map_err(uncarried)?;
            Ok(hypervisor.export(branch, about.clone(), target, progress).await?)
        }
        .boxed()
    }

    fn look<'a>(&'a self, file: &'a Path) -> BoxFuture<'a, Result<Carried, CarryFailure>> {
        async move { Ok(carry::look(file).await?.into()) }.boxed()
    }

    fn import<'a>(
        &'a self,
        spec: &'a VmSpec,
        arrival: Arrival<'a>,
        progress: &'a Progress,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Imported, CarryFailure>> {
        async move {
            let hypervisor = self.hypervisor().await.map_err(uncarried)?;
            Ok(hypervisor.import(spec, arrival, progress, cancel).await?)
        }
        .boxed()
    }

    fn delete_snapshot<'a>(
        &'a self,
        spec: &'a VmSpec,
        snapshot: SnapshotId,
    ) -> BoxFuture<'a, Result<(), SnapshotFailure>> {
        async move {
            let hypervisor = self.hypervisor().await.map_err(unusable)?;
            Ok(hypervisor.delete_snapshot(spec, None, snapshot).await?)
        }
        .boxed()
    }

    fn diff<'a>(
        &'a self,
        spec: &'a VmSpec,
        snapshot: SnapshotId,
        cancelled: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<SnapshotDiff, SnapshotFailure>> {
        async move {
            let hypervisor = self.hypervisor().await.map_err(unusable)?;
            Ok(hypervisor.diff(spec, None, snapshot, cancelled).await?)
        }
        .boxed()
    }

    fn settle<'a>(
        &'a self,
        spec: &'a VmSpec,
        known: &'a [SnapshotId],
    ) -> BoxFuture<'a, Result<(), SnapshotFailure>> {
        async move {
            let hypervisor = self.hypervisor().await.map_err(unusable)?;
            Ok(hypervisor.settle(spec, None, known).await?)
        }
        .boxed()
    }

    fn is_alive(&self, record: &VmRecord) -> bool {
        Process::find(record).is_ok_and(|process| process.is_some_and(|process| !process.has_exited()))
    }

    fn attach<'a>(
        &'a self,
        spec: &'a VmSpec,
        record: &'a VmRecord,
    ) -> BoxFuture<'a, Result<Arc<dyn Vm>, AttachFailure>> {
        async move {
            let hypervisor = self.hypervisor().await;
            let hypervisor =
                hypervisor.map_err(|error| AttachFailure::HostUnfit { reason: error.to_string() })?;
            let vm = hypervisor.attach(spec, record).await?;
            Ok(Arc::new(RunningVm::new(hypervisor, spec, vm)) as Arc<dyn Vm>)
        }
        .boxed()
    }

    fn halt<'a>(&'a self, spec: &'a VmSpec, record: Option<&'a VmRecord>) -> BoxFuture<'a, ()> {
        async move {
            if let Some(record) = record {
                end(record).await;
            }
            for stray in self.processes_of(|stray| stray.id == spec.id) {
                end(&stray.record).await;
            }
            if let Err(error) = remove(&spec.run_dir).await {
                tracing::warn!(%error, "cannot remove the sockets of a VM that ended");
            }
        }
        .boxed()
    }

    fn erase<'a>(&'a self, spec: &'a VmSpec) -> BoxFuture<'a, Result<(), EraseFailure>> {
        async move {
            remove(&spec.run_dir).await?;
            let directory = spec.data_dir.clone();
            let discarded = tokio::task::spawn_blocking(move || files::discard_dir(&directory)).await;
            let what = spec.data_dir.display().to_string();
            match discarded {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(EraseFailure { what, source: error.source }),
                Err(error) => Err(EraseFailure { what, source: io::Error::other(error) }),
            }
        }
        .boxed()
    }

    fn strays(&self) -> Vec<Stray> {
        // Cgroups of VMs that are gone are removed before any is made.
        let _ = self.cgroups();
        self.processes_of(|_| true)
    }

    fn end_stray<'a>(&'a self, stray: &'a Stray) -> BoxFuture<'a, Result<(), String>> {
        async move { strays::remove_stray(stray).await.map_err(|error| error.to_string()) }.boxed()
    }

    fn stray_ended<'a>(&'a self, record: &'a VmRecord) -> BoxFuture<'a, ()> {
        async move {
            match Process::find(record) {
                // Its cgroup is removed with it.
                Ok(Some(process)) => drop(process.wait().await),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot watch a VM in quarantine; its end will not be noticed");
                    std::future::pending().await
                }
            }
        }
        .boxed()
    }

    fn disk_snapshots(&self, spec: &VmSpec) -> Result<Option<Vec<DiskSnapshot>>, SnapshotFailure> {
        match Qcow2Storage::listed_now(&spec.data_dir) {
            Ok(listed) => Ok(Some(listed)),
            Err(DiskError::NoVolume(_)) => Ok(None),
            Err(error) => Err(SnapshotFailure::Failed { reason: error.to_string() }),
        }
    }

    fn prepare<'a>(
        &'a self,
        image: &'a ImageName,
        resources: Resources,
    ) -> BoxFuture<'a, Result<(), BootFailure>> {
        async move {
            if !self.config.vm.templates {
                return Ok(());
            }
            self.may_start()?;
            let failed = |reason: String| BootFailure::Failed { reason };
            let base =
                artefacts::base_image(&self.config, image).map_err(|error| failed(error.to_string()))?;
            let templates = self.hypervisor().await?.templates().clone();
            let quiet = Progress::silent();
            let made = templates.ensure_image(&base, resources, self.config.vm.init_mode, &quiet).await;
            made.map_err(|error| failed(error.to_string()))?;
            let images = artefacts::image_ids(&self.config);
            let pruned = tokio::task::spawn_blocking(move || templates.prune(&images)).await;
            if let Ok(Err(error)) = pruned {
                tracing::warn!(%error, "cannot remove outdated templates");
            }
            Ok(())
        }
        .boxed()
    }

    fn templates(&self) -> Vec<TemplateInfo> {
        let hypervisor = self.hypervisor.get();
        hypervisor.map(|h| h.templates().list().iter().map(facts::template).collect()).unwrap_or_default()
    }

    fn volume_usage(&self, spec: &VmSpec, of: SizesOf) -> Option<VolumeSizes> {
        Qcow2Storage::sizes_now(&spec.data_dir, of).ok()
    }

    fn origin(&self, spec: &VmSpec) -> Option<Origin> {
        let found = Qcow2Storage::origin_now(&spec.data_dir).ok()?;
        Some(found.map_or(Origin::Beginning, Origin::Snapshot))
    }

    fn bytes_while_copying(&self, memory_bytes: u64) -> u64 {
        // A VM whose memory is copied is running, so there is a hypervisor.
        self.hypervisor.get().map_or(memory_bytes, |hypervisor| hypervisor.bytes_while_copying(memory_bytes))
    }

    fn host_memory(&self) -> Option<HostMemory> {
        let memory = agentiso_sys::host_memory::host_memory().ok().flatten()?;
        Some(HostMemory { total_mb: memory.total_bytes / MIB, available_mb: memory.available_bytes / MIB })
    }

    fn host_space(&self) -> Option<HostSpace> {
        let space = files::space(&self.config.paths.data).ok()?;
        Some(HostSpace { total_bytes: space.total_bytes, available_bytes: space.free_bytes })
    }

    fn facts(&self) -> BoxFuture<'_, Result<HostFacts, BootFailure>> {
        async move { Ok(facts::facts(&self.config, self.hypervisor().await?.facts())) }.boxed()
    }
}

fn uncarried(failure: BootFailure) -> CarryFailure {
    CarryFailure::Failed { reason: failure.to_string() }
}

fn unusable(failure: BootFailure) -> SnapshotFailure {
    SnapshotFailure::Failed { reason: failure.to_string() }
}

/// Ends the recorded process, if it is still that process, and waits until it is gone.
async fn end(record: &VmRecord) {
    let process = match Process::find(record) {
        Ok(Some(process)) => process,
        Ok(None) => return,
        Err(error) => {
            tracing::error!(%error, "cannot inspect the process of a VM");
            return;
        }
    };
    process.kill();
    if tokio::time::timeout(KILL_DEADLINE, process.wait()).await.is_err() {
        tracing::error!(pid = record.pid, "a killed VM has not ended");
    }
}

async fn remove(directory: &Path) -> Result<(), EraseFailure> {
    let path: PathBuf = directory.into();
    let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(path)).await;
    match removed.unwrap_or_else(|error| Err(io::Error::other(error))) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(EraseFailure { what: directory.display().to_string(), source })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

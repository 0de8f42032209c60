//! A fake host: an implementation of the daemon's `Vms` trait with processes and disks as files.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentiso_core::ids::SnapshotId;
use agentiso_core::memory::HostMemory;
use agentiso_core::names::ImageName;
use agentiso_core::resources::Resources;
use agentiso_core::space::HostSpace;
use agentiso_daemon::vms::{
    About, Arrival, AttachFailure, BootFailure, Booted, Carried, CarryFailure, DiskSnapshot, EraseFailure,
    Exported, HostFacts, ImageFailure, ImageRef, Imported, OnSpawn, Origin, SizesOf, SnapshotFailure,
    SnapshotSizes, Stray, Target, TemplateInfo, Vm, VmRecord, VmSpec, Vms, VolumeSizes,
};
use agentiso_daemon::{Progress, Rung, SnapshotDiff};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::vm::FakeVm;
use super::volume::Volume;

pub(crate) const BOOT_ID: &str = "the-only-boot";

/// A fault that strikes once, at its next occasion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    BootFailsBeforeSpawn,
    BootFailsAfterSpawn,
    BootHangsBeforeSpawn,
    BootHangsAfterSpawn,
    EraseFails,
    IdentifyFails,
    AttachFails,
    /// The VM's process is no longer the program that was started.
    AttachFindsAnother,
    NoSpace,
    /// Fails before anything was changed.
    SnapshotFails,
    /// The volume has the snapshot, but the caller gets an error.
    SnapshotFailsHalfway,
    DeleteFails,
    /// Fails before the disk was switched.
    RestoreFails,
    /// The disk is restored without its memory.
    MemoryIsLost,
    BranchFails,
    ExportFails,
    ExportHangs,
    /// Fails after its directory was made.
    ImportFails,
    ImportHangs,
    SettleFails,
    /// The snapshots on a disk cannot be listed.
    ListingFails,
    /// Tidying reads the volume at the beginning and writes it at the end, when it is interrupted.
    TidyingTakesLong,
    /// The snapshot that a disk descends from cannot be determined.
    OriginUnknown,
    /// Writing a file of a guest fails; the content is not kept in any case.
    WriteFails,
}

pub(crate) fn snapshot_failed(reason: &str) -> SnapshotFailure {
    SnapshotFailure::Failed { reason: reason.to_owned() }
}

#[derive(Debug)]
pub(crate) struct FakeHost {
    root: PathBuf,
    faults: Mutex<Vec<Fault>>,
    pub(crate) exits: Mutex<HashMap<i32, watch::Sender<Option<String>>>>,
    /// Files that processes hold open until they end.
    pub(crate) open_files: Mutex<HashMap<i32, fs::File>>,
    /// Notified whenever a boot has begun to hang.
    pub(crate) hanging: Notify,
    /// The number of commands ever begun.
    pub(crate) commands: AtomicU64,
    /// Ends a command that waits.
    pub(crate) go: Notify,
    pub(crate) snapshots_begun: AtomicU64,
    pub(crate) available_mb: AtomicU64,
    /// Of a disk of 100 GiB.
    pub(crate) available_bytes: AtomicU64,
    /// Bytes that every volume takes beyond its content.
    pub(crate) padding_bytes: AtomicU64,
    pub(crate) hostnames: Mutex<HashMap<i32, String>>,
    /// The reason why no guest can write, if there is one.
    missing_space: watch::Sender<Option<String>>,
    pub(crate) killed_commands: Arc<AtomicU64>,
    pub(crate) shutdown_takes: Mutex<Duration>,
    pub(crate) kill_takes: Mutex<Duration>,
    pub(crate) snapshot_takes: Mutex<Duration>,
    pub(crate) boot_takes: Mutex<Duration>,
    pub(crate) branch_takes: Mutex<Duration>,
    pub(crate) delete_takes: Mutex<Duration>,
    booting: AtomicU64,
    /// The most boots that ever ran at the same time.
    pub(crate) most_booting: AtomicU64,
    volumes: Mutex<()>,
}

impl FakeHost {
    pub(crate) fn new(root: &Path) -> Arc<Self> {
        let root = root.join("world");
        fs::create_dir_all(root.join("processes")).unwrap();
        fs::create_dir_all(root.join("memory")).unwrap();
        Arc::new(Self {
            root,
            faults: Mutex::default(),
            exits: Mutex::default(),
            open_files: Mutex::default(),
            hanging: Notify::new(),
            commands: AtomicU64::new(0),
            go: Notify::new(),
            snapshots_begun: AtomicU64::new(0),
            available_mb: AtomicU64::new(1 << 20),
            available_bytes: AtomicU64::new(50 << 30),
            padding_bytes: AtomicU64::new(0),
            hostnames: Mutex::default(),
            missing_space: watch::channel(None).0,
            killed_commands: Arc::default(),
            shutdown_takes: Mutex::default(),
            kill_takes: Mutex::default(),
            snapshot_takes: Mutex::default(),
            boot_takes: Mutex::default(),
            branch_takes: Mutex::default(),
            delete_takes: Mutex::default(),
            booting: AtomicU64::new(0),
            most_booting: AtomicU64::new(0),
            volumes: Mutex::default(),
        })
    }

    pub(crate) fn inject(&self, fault: Fault) {
        self.faults.lock().unwrap().push(fault);
    }

    /// Removes faults that had no occasion.
    pub(crate) fn clear_faults(&self) {
        self.faults.lock().unwrap().clear();
    }

    pub(crate) fn take_fault(&self, fault: Fault) -> bool {
        let mut faults = self.faults.lock().unwrap();
        let found = faults.iter().position(|waiting| *waiting == fault);
        found.map(|at| faults.remove(at)).is_some()
    }

    /// Whether a fault still waits for its occasion.
    pub(crate) fn has_fault(&self, fault: Fault) -> bool {
        self.faults.lock().unwrap().contains(&fault)
    }

    fn process(&self, pid: i32) -> PathBuf {
        self.root.join("processes").join(pid.to_string())
    }

    /// Every process with the short id of its workspace.
    pub(crate) fn processes(&self) -> Vec<(i32, String)> {
        let entries = fs::read_dir(self.root.join("processes")).unwrap();
        let mut all: Vec<_> = entries
            .map(|entry| entry.unwrap())
            .map(|entry| {
                let pid = entry.file_name().to_str().unwrap().parse().unwrap();
                let mut id = fs::read_to_string(entry.path()).unwrap_or_default();
                id.truncate(8);
                (pid, id)
            })
            .collect();
        all.sort();
        all
    }

    fn record(pid: i32) -> VmRecord {
        VmRecord { pid, start_time: pid as u64, boot_id: BOOT_ID.to_owned() }
    }

    /// Every process as the host's list of processes shows it.
    fn strays(&self, run_root: &Path) -> Vec<Stray> {
        let processes = self.processes().into_iter();
        processes
            .filter_map(|(pid, short)| {
                let id = fs::read_to_string(self.process(pid)).ok()?.parse().ok()?;
                Some(Stray { record: Self::record(pid), id, run_dir: run_root.join(short) })
            })
            .collect()
    }

    /// Records the name that a VM is given after it booted.
    pub(crate) fn identify(&self, pid: i32, hostname: &str) {
        self.hostnames.lock().unwrap().insert(pid, hostname.to_owned());
    }

    /// Makes all VMs stand still for lack of room, or lets them continue.
    pub(crate) fn fill_disk(&self, missing: Option<&str>) {
        self.missing_space.send_replace(missing.map(str::to_owned));
    }

    pub(crate) fn stalled(&self, _pid: i32) -> BoxFuture<'static, String> {
        let mut missing = self.missing_space.subscribe();
        async move {
            let found = missing.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
            match found {
                Some(reason) => reason,
                None => std::future::pending().await,
            }
        }
        .boxed()
    }

    pub(crate) fn go_on(&self, _pid: i32) -> Option<String> {
        self.missing_space.borrow().clone()
    }

    /// Starts a process that no ledger lists.
    pub(crate) fn spawn_stray(&self, id: &str) -> i32 {
        self.spawn(id).pid
    }

    fn spawn(&self, id: &str) -> VmRecord {
        let _one_at_a_time = self.faults.lock().unwrap();
        let counter = self.root.join("last_pid");
        let pid = fs::read_to_string(&counter).ok().and_then(|text| text.parse().ok()).unwrap_or(1000) + 1;
        fs::write(&counter, pid.to_string()).unwrap();
        fs::write(self.process(pid), id).unwrap();
        Self::record(pid)
    }

    pub(crate) fn lives(&self, pid: i32) -> bool {
        self.process(pid).exists()
    }

    pub(crate) fn memory(&self, pid: i32) -> String {
        fs::read_to_string(self.root.join("memory").join(pid.to_string())).unwrap_or_default()
    }

    pub(crate) fn remember(&self, pid: i32, text: &str) {
        fs::write(self.root.join("memory").join(pid.to_string()), text).unwrap();
    }

    pub(crate) fn change_volume<T>(
        &self,
        directory: &Path,
        change: impl FnOnce(&mut Volume) -> T,
    ) -> Result<T, SnapshotFailure> {
        let _one_at_a_time = self.volumes.lock().unwrap();
        let mut volume = Volume::load(directory).ok_or_else(|| snapshot_failed("its disk is gone"))?;
        let changed = change(&mut volume);
        volume.save(directory);
        Ok(changed)
    }

    pub(crate) async fn delete_snapshot(
        &self,
        directory: &Path,
        snapshot: SnapshotId,
    ) -> Result<(), SnapshotFailure> {
        let takes = *self.delete_takes.lock().unwrap();
        tokio::time::sleep(takes).await;
        if self.take_fault(Fault::DeleteFails) {
            return Err(snapshot_failed("it was told to fail"));
        }
        self.change_volume(directory, |volume| volume.remove(snapshot))
    }

    pub(crate) fn diff(
        &self,
        directory: &Path,
        snapshot: SnapshotId,
    ) -> Result<SnapshotDiff, SnapshotFailure> {
        let volume = Volume::load(directory).ok_or_else(|| snapshot_failed("its disk is gone"))?;
        let frozen = volume.snapshots.get(&snapshot).ok_or_else(|| snapshot_failed("no such snapshot"))?;
        let same = frozen.content == volume.content;
        let changed_bytes = if same { 0 } else { volume.content.len() as u64 };
        let paths_unknown = Some("this is a world of files".to_owned());
        Ok(SnapshotDiff { changed_bytes, paths: None, paths_unknown })
    }

    pub(crate) fn settle(&self, directory: &Path, known: &[SnapshotId]) -> Result<(), SnapshotFailure> {
        if self.take_fault(Fault::SettleFails) {
            return Err(snapshot_failed("it was told to fail"));
        }
        self.change_volume(directory, |volume| volume.settle(known))
    }

    /// Like `kill -9` from outside.
    pub(crate) fn kill(&self, pid: i32, reason: &str) {
        drop(self.open_files.lock().unwrap().remove(&pid));
        let _ = fs::remove_file(self.process(pid));
        let _ = fs::remove_file(self.root.join("memory").join(pid.to_string()));
        if let Some(exit) = self.exits.lock().unwrap().get(&pid) {
            exit.send_replace(Some(reason.to_owned()));
        }
    }

    pub(crate) fn vm(self: &Arc<Self>, spec: &VmSpec, record: &VmRecord) -> Arc<dyn Vm> {
        let mut exits = self.exits.lock().unwrap();
        let exit = exits.entry(record.pid).or_insert_with(|| watch::channel(None).0).subscribe();
        let data_dir = spec.data_dir.clone();
        Arc::new(FakeVm { host: Arc::clone(self), record: record.clone(), data_dir, exit })
    }

    async fn boot(
        &self,
        this: Arc<FakeHost>,
        spec: &VmSpec,
        spawned: OnSpawn,
        memory: Option<String>,
    ) -> Result<Booted, BootFailure> {
        let _boot_count = BootCount::new(&this);
        let failed = |reason: &str| BootFailure::Failed { reason: reason.to_owned() };
        if self.take_fault(Fault::NoSpace) {
            return Err(BootFailure::NoSpace { what: "disk.qcow2".to_owned() });
        }
        if self.take_fault(Fault::BootFailsBeforeSpawn) {
            return Err(failed("it was told to fail before the spawn"));
        }
        if self.take_fault(Fault::BootHangsBeforeSpawn) {
            self.hanging.notify_one();
            std::future::pending::<()>().await;
        }
        let takes = *self.boot_takes.lock().unwrap();
        tokio::time::sleep(takes).await;
        fs::create_dir_all(&spec.run_dir).unwrap();
        fs::write(spec.run_dir.join("qmp.sock"), "").unwrap();
        let record = self.spawn(&spec.id.to_string());
        let ended_unless_booted = EndOnDrop { host: Arc::clone(&this), pid: Some(record.pid) };
        spawned.tell(record.clone()).await?;
        if self.take_fault(Fault::BootHangsAfterSpawn) {
            self.hanging.notify_one();
            std::future::pending::<()>().await;
        }
        if self.take_fault(Fault::BootFailsAfterSpawn) {
            return Err(failed("it was told to fail after the spawn"));
        }
        fs::write(spec.data_dir.join("console.log"), "booted\n").unwrap();
        let lost = memory.is_some() && self.take_fault(Fault::MemoryIsLost);
        let rung = if memory.is_some() && !lost { Rung::Memory } else { Rung::ImageTemplate };
        if let Some(memory) = memory.filter(|_| !lost) {
            self.remember(record.pid, &memory);
        }
        let vm = this.vm(spec, &record);
        ended_unless_booted.keep();
        let warning = lost.then(|| "its memory could not be brought back".to_owned());
        Ok(Booted { vm, rung, boot_time: Duration::from_millis(1), warning })
    }
}

/// Counts a boot while it lasts.
struct BootCount(Arc<FakeHost>);

impl BootCount {
    fn new(host: &Arc<FakeHost>) -> Self {
        let now = host.booting.fetch_add(1, Ordering::SeqCst) + 1;
        host.most_booting.fetch_max(now, Ordering::SeqCst);
        Self(Arc::clone(host))
    }
}

impl Drop for BootCount {
    fn drop(&mut self) {
        self.0.booting.fetch_sub(1, Ordering::SeqCst);
    }
}

struct EndOnDrop {
    host: Arc<FakeHost>,
    pid: Option<i32>,
}

impl EndOnDrop {
    fn keep(mut self) {
        self.pid = None;
    }
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            self.host.kill(pid, "its boot was given up");
        }
    }
}

impl Vms for FakeVms {
    fn image(&self, name: &ImageName) -> Result<ImageRef, ImageFailure> {
        if name.as_str().starts_with("debian") {
            return Ok(ImageRef { name: name.clone(), id: "sha256:1".to_owned(), virtual_size: 1 << 30 });
        }
        Err(ImageFailure::Missing { name: name.clone(), known: vec!["debian-dev".to_owned()] })
    }

    fn create<'a>(
        &'a self,
        spec: &'a VmSpec,
        spawned: OnSpawn,
        _progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>> {
        async move {
            Volume::fresh("fresh").save(&spec.data_dir);
            self.0.boot(Arc::clone(&self.0), spec, spawned, None).await
        }
        .boxed()
    }

    fn start<'a>(
        &'a self,
        spec: &'a VmSpec,
        spawned: OnSpawn,
        _progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>> {
        async move {
            if Volume::load(&spec.data_dir).is_none() {
                return Err(BootFailure::Failed { reason: "its disk is gone".to_owned() });
            }
            self.0.boot(Arc::clone(&self.0), spec, spawned, None).await
        }
        .boxed()
    }

    fn restore<'a>(
        &'a self,
        spec: &'a VmSpec,
        snapshot: SnapshotId,
        spawned: OnSpawn,
        _progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>> {
        async move {
            let running = self.0.processes().into_iter().any(|(_, short)| short == spec.id.short());
            assert!(!running, "a disk was switched under a VM that runs");
            let failed = |reason: String| BootFailure::Failed { reason };
            if self.0.take_fault(Fault::RestoreFails) {
                return Err(failed("it was told to fail before the switch".to_owned()));
            }
            let frozen = self.0.change_volume(&spec.data_dir, |volume| volume.go_back(snapshot));
            let frozen = frozen.map_err(|error| failed(error.to_string()))?;
            let frozen = frozen.ok_or_else(|| failed("no such snapshot".to_owned()))?;
            self.0.boot(Arc::clone(&self.0), spec, spawned, frozen.memory).await
        }
        .boxed()
    }

    fn branch<'a>(
        &'a self,
        source: &'a VmSpec,
        snapshot: SnapshotId,
        fork: &'a VmSpec,
    ) -> BoxFuture<'a, Result<(), SnapshotFailure>> {
        async move {
            let takes = *self.0.branch_takes.lock().unwrap();
            tokio::time::sleep(takes).await;
            if self.0.take_fault(Fault::BranchFails) {
                return Err(snapshot_failed("it was told to fail"));
            }
            let source = Volume::load(&source.data_dir).ok_or_else(|| snapshot_failed("its disk is gone"))?;
            let branch = source.branch(snapshot).ok_or_else(|| snapshot_failed("no such snapshot"))?;
            branch.save(&fork.data_dir);
            Ok(())
        }
        .boxed()
    }

    fn create_branch<'a>(
        &'a self,
        fork: &'a VmSpec,
        spawned: OnSpawn,
        _progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>> {
        async move {
            let memory = self.0.change_volume(&fork.data_dir, |volume| volume.memory.take());
            let memory = memory.map_err(|error| BootFailure::Failed { reason: error.to_string() })?;
            self.0.boot(Arc::clone(&self.0), fork, spawned, memory).await
        }
        .boxed()
    }

    fn export<'a>(
        &'a self,
        branch: &'a VmSpec,
        about: &'a About,
        target: &'a Target,
        _progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Exported, CarryFailure>> {
        Arc::clone(&self.0).export(branch, about, target).boxed()
    }

    fn look<'a>(&'a self, file: &'a Path) -> BoxFuture<'a, Result<Carried, CarryFailure>> {
        async move { self.0.look(file) }.boxed()
    }

    fn import<'a>(
        &'a self,
        spec: &'a VmSpec,
        arrival: Arrival<'a>,
        _progress: &'a Progress,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Imported, CarryFailure>> {
        Arc::clone(&self.0).import(spec, arrival, cancel).boxed()
    }

    fn delete_snapshot<'a>(
        &'a self,
        spec: &'a VmSpec,
        snapshot: SnapshotId,
    ) -> BoxFuture<'a, Result<(), SnapshotFailure>> {
        async move { self.0.delete_snapshot(&spec.data_dir, snapshot).await }.boxed()
    }

    fn diff<'a>(
        &'a self,
        spec: &'a VmSpec,
        snapshot: SnapshotId,
        _cancelled: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<SnapshotDiff, SnapshotFailure>> {
        async move { self.0.diff(&spec.data_dir, snapshot) }.boxed()
    }

    fn settle<'a>(
        &'a self,
        spec: &'a VmSpec,
        known: &'a [SnapshotId],
    ) -> BoxFuture<'a, Result<(), SnapshotFailure>> {
        async move {
            let running = self.0.processes().into_iter().any(|(_, short)| short == spec.id.short());
            assert!(!running, "a disk was put in order under a VM that runs");
            self.0.settle(&spec.data_dir, known)
        }
        .boxed()
    }

    fn is_alive(&self, record: &VmRecord) -> bool {
        record.boot_id == BOOT_ID && self.0.lives(record.pid)
    }

    fn attach<'a>(
        &'a self,
        spec: &'a VmSpec,
        record: &'a VmRecord,
    ) -> BoxFuture<'a, Result<Arc<dyn Vm>, AttachFailure>> {
        async move {
            if self.0.take_fault(Fault::AttachFails) {
                return Err(AttachFailure::Unreachable { reason: "it was told to fail".to_owned() });
            }
            if self.0.take_fault(Fault::AttachFindsAnother) {
                return Err(AttachFailure::Altered { reason: "it says that it is another".to_owned() });
            }
            if !self.is_alive(record) {
                return Err(AttachFailure::Gone);
            }
            Ok(self.0.vm(spec, record))
        }
        .boxed()
    }

    fn halt<'a>(&'a self, spec: &'a VmSpec, _record: Option<&'a VmRecord>) -> BoxFuture<'a, ()> {
        async move {
            let short = spec.id.short();
            for (pid, _) in self.0.processes().into_iter().filter(|(_, of)| *of == short) {
                self.0.kill(pid, "halted");
            }
            let _ = fs::remove_dir_all(&spec.run_dir);
        }
        .boxed()
    }

    fn erase<'a>(&'a self, spec: &'a VmSpec) -> BoxFuture<'a, Result<(), EraseFailure>> {
        async move {
            let what = spec.data_dir.display().to_string();
            if self.0.take_fault(Fault::EraseFails) {
                return Err(EraseFailure { what, source: io::Error::other("it was told to fail") });
            }
            for directory in [&spec.data_dir, &spec.run_dir] {
                match fs::remove_dir_all(directory) {
                    Err(source) if source.kind() != io::ErrorKind::NotFound => {
                        return Err(EraseFailure { what, source });
                    }
                    Ok(()) | Err(_) => {}
                }
            }
            Ok(())
        }
        .boxed()
    }

    fn strays(&self) -> Vec<Stray> {
        self.0.strays(&self.0.root.with_file_name("run"))
    }

    fn end_stray<'a>(&'a self, stray: &'a Stray) -> BoxFuture<'a, Result<(), String>> {
        async move {
            self.0.kill(stray.record.pid, "a stray");
            let _ = fs::remove_dir_all(&stray.run_dir);
            Ok(())
        }
        .boxed()
    }

    fn stray_ended<'a>(&'a self, record: &'a VmRecord) -> BoxFuture<'a, ()> {
        async move {
            let mut exit = {
                let mut exits = self.0.exits.lock().unwrap();
                exits.entry(record.pid).or_insert_with(|| watch::channel(None).0).subscribe()
            };
            if self.is_alive(record) {
                let _ = exit.wait_for(Option::is_some).await;
            }
        }
        .boxed()
    }

    fn disk_snapshots(&self, spec: &VmSpec) -> Result<Option<Vec<DiskSnapshot>>, SnapshotFailure> {
        if self.0.take_fault(Fault::ListingFails) {
            return Err(snapshot_failed("it was told to fail"));
        }
        Ok(Volume::load(&spec.data_dir).map(|volume| volume.listed()))
    }

    fn prepare<'a>(
        &'a self,
        _image: &'a ImageName,
        _resources: Resources,
    ) -> BoxFuture<'a, Result<(), BootFailure>> {
        async { Ok(()) }.boxed()
    }

    fn templates(&self) -> Vec<TemplateInfo> {
        Vec::new()
    }

    fn volume_usage(&self, spec: &VmSpec, _of: SizesOf) -> Option<VolumeSizes> {
        let volume = Volume::load(&spec.data_dir)?;
        let sizes = volume.snapshots.iter().map(|(id, frozen)| {
            let used_bytes = frozen.content.len() as u64;
            (*id, SnapshotSizes { used_bytes, referenced_bytes: used_bytes })
        });
        let snapshots: std::collections::BTreeMap<_, _> = sizes.collect();
        let frozen: u64 = snapshots.values().map(|sizes| sizes.used_bytes).sum();
        let padding = self.0.padding_bytes.load(Ordering::Relaxed);
        let used_bytes = volume.content.len() as u64 + frozen + padding;
        Some(VolumeSizes {
            used_bytes,
            charged_bytes: used_bytes,
            virtual_bytes: u64::from(spec.resources.disk_gb) << 30,
            snapshots,
        })
    }

    fn origin(&self, spec: &VmSpec) -> Option<Origin> {
        if self.0.take_fault(Fault::OriginUnknown) {
            return None;
        }
        let origin = Volume::load(&spec.data_dir)?.origin;
        Some(origin.map_or(Origin::Beginning, Origin::Snapshot))
    }

    fn host_space(&self) -> Option<HostSpace> {
        let available_bytes = self.0.available_bytes.load(Ordering::Relaxed);
        Some(HostSpace { total_bytes: 100 << 30, available_bytes })
    }

    fn bytes_while_copying(&self, memory_bytes: u64) -> u64 {
        let in_memory = self.0.available_mb.load(Ordering::Relaxed) << 20 > memory_bytes;
        if in_memory { memory_bytes } else { 2 * memory_bytes }
    }

    fn host_memory(&self) -> Option<HostMemory> {
        let available_mb = self.0.available_mb.load(Ordering::Relaxed);
        Some(HostMemory { total_mb: 1 << 20, available_mb })
    }

    fn facts(&self) -> BoxFuture<'_, Result<HostFacts, BootFailure>> {
        async { Err(BootFailure::HostUnfit { reason: "this is a world of files".to_owned() }) }.boxed()
    }
}

/// The fake host as the daemon holds it.
#[derive(Clone, Debug)]
pub(crate) struct FakeVms(pub(crate) Arc<FakeHost>);

//! Processes and disks as files, behind the daemon's seam.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentiso_core::memory::HostMemory;
use agentiso_core::names::ImageName;
use agentiso_core::resources::Resources;
use agentiso_daemon::machines::{
    AttachFailure, BootFailure, Booted, DiskUsage, EraseFailure, HostFacts, ImageFailure, ImageRef, Machine,
    MachineRecord, MachineSpec, Machines, SpawnHook, TemplateInfo,
};
use agentiso_daemon::{Progress, Rung};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{Notify, watch};

use super::machine::FakeMachine;

pub(crate) const BOOT_ID: &str = "the-only-boot";

/// What goes wrong the next time it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    BootFailsBeforeSpawn,
    BootFailsAfterSpawn,
    BootHangsBeforeSpawn,
    BootHangsAfterSpawn,
    EraseFails,
    AttachFails,
    NoSpace,
}

#[derive(Debug)]
pub(crate) struct World {
    root: PathBuf,
    faults: Mutex<Vec<Fault>>,
    pub(crate) exits: Mutex<HashMap<i32, watch::Sender<Option<String>>>>,
    /// Told whenever a boot has begun to hang.
    pub(crate) hanging: Notify,
    pub(crate) available_mb: AtomicU64,
    pub(crate) killed_commands: Arc<AtomicU64>,
    pub(crate) shutdown_takes: Mutex<Duration>,
}

impl World {
    pub(crate) fn new(root: &Path) -> Arc<Self> {
        let root = root.join("world");
        fs::create_dir_all(root.join("processes")).unwrap();
        Arc::new(Self {
            root,
            faults: Mutex::default(),
            exits: Mutex::default(),
            hanging: Notify::new(),
            available_mb: AtomicU64::new(1 << 20),
            killed_commands: Arc::default(),
            shutdown_takes: Mutex::default(),
        })
    }

    pub(crate) fn inject(&self, fault: Fault) {
        self.faults.lock().unwrap().push(fault);
    }

    /// Takes back faults that had no occasion.
    pub(crate) fn calm(&self) {
        self.faults.lock().unwrap().clear();
    }

    fn strikes(&self, fault: Fault) -> bool {
        let mut faults = self.faults.lock().unwrap();
        let found = faults.iter().position(|waiting| *waiting == fault);
        found.map(|at| faults.remove(at)).is_some()
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
                (pid, fs::read_to_string(entry.path()).unwrap_or_default())
            })
            .collect();
        all.sort();
        all
    }

    /// A process that no ledger knows.
    pub(crate) fn spawn_stray(&self, short: &str) -> i32 {
        self.spawn(short).pid
    }

    fn spawn(&self, short: &str) -> MachineRecord {
        let _one_at_a_time = self.faults.lock().unwrap();
        let counter = self.root.join("last_pid");
        let pid = fs::read_to_string(&counter).ok().and_then(|text| text.parse().ok()).unwrap_or(1000) + 1;
        fs::write(&counter, pid.to_string()).unwrap();
        fs::write(self.process(pid), short).unwrap();
        MachineRecord { pid, start_time: pid as u64, boot_id: BOOT_ID.to_owned() }
    }

    pub(crate) fn lives(&self, pid: i32) -> bool {
        self.process(pid).exists()
    }

    /// As `kill -9` from outside.
    pub(crate) fn kill(&self, pid: i32, reason: &str) {
        let _ = fs::remove_file(self.process(pid));
        if let Some(exit) = self.exits.lock().unwrap().get(&pid) {
            exit.send_replace(Some(reason.to_owned()));
        }
    }

    pub(crate) fn machine(self: &Arc<Self>, record: &MachineRecord) -> Arc<dyn Machine> {
        let mut exits = self.exits.lock().unwrap();
        let exit = exits.entry(record.pid).or_insert_with(|| watch::channel(None).0).subscribe();
        Arc::new(FakeMachine { world: Arc::clone(self), record: record.clone(), exit })
    }

    async fn boot(
        &self,
        this: Arc<World>,
        spec: &MachineSpec,
        spawned: SpawnHook,
    ) -> Result<Booted, BootFailure> {
        let failed = |reason: &str| BootFailure::Failed { reason: reason.to_owned() };
        if self.strikes(Fault::NoSpace) {
            return Err(BootFailure::NoSpace { what: "disk.qcow2".to_owned() });
        }
        if self.strikes(Fault::BootFailsBeforeSpawn) {
            return Err(failed("it was told to fail before the spawn"));
        }
        if self.strikes(Fault::BootHangsBeforeSpawn) {
            self.hanging.notify_one();
            std::future::pending::<()>().await;
        }
        fs::create_dir_all(&spec.run_dir).unwrap();
        fs::write(spec.run_dir.join("qmp.sock"), "").unwrap();
        let record = self.spawn(&spec.id.short());
        let ended_unless_booted = EndOnDrop { world: Arc::clone(&this), pid: Some(record.pid) };
        spawned(record.clone()).await?;
        if self.strikes(Fault::BootHangsAfterSpawn) {
            self.hanging.notify_one();
            std::future::pending::<()>().await;
        }
        if self.strikes(Fault::BootFailsAfterSpawn) {
            return Err(failed("it was told to fail after the spawn"));
        }
        fs::write(spec.data_dir.join("console.log"), "booted\n").unwrap();
        let machine = this.machine(&record);
        ended_unless_booted.keep();
        Ok(Booted { machine, rung: Rung::ImageTemplate, boot_time: Duration::from_millis(1) })
    }
}

struct EndOnDrop {
    world: Arc<World>,
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
            self.world.kill(pid, "its boot was given up");
        }
    }
}

impl Machines for Handle {
    fn image(&self, name: &ImageName) -> Result<ImageRef, ImageFailure> {
        if name.as_str().starts_with("debian") {
            return Ok(ImageRef { name: name.clone(), id: "sha256:1".to_owned(), virtual_size: 1 << 30 });
        }
        Err(ImageFailure::Missing { name: name.clone(), known: vec!["debian-dev".to_owned()] })
    }

    fn create<'a>(
        &'a self,
        spec: &'a MachineSpec,
        spawned: SpawnHook,
        _progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>> {
        async move {
            fs::create_dir_all(&spec.data_dir).unwrap();
            fs::write(spec.data_dir.join("disk.qcow2"), "fresh").unwrap();
            self.0.boot(Arc::clone(&self.0), spec, spawned).await
        }
        .boxed()
    }

    fn start<'a>(
        &'a self,
        spec: &'a MachineSpec,
        spawned: SpawnHook,
        _progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>> {
        async move {
            if !spec.data_dir.join("disk.qcow2").exists() {
                return Err(BootFailure::Failed { reason: "its disk is gone".to_owned() });
            }
            self.0.boot(Arc::clone(&self.0), spec, spawned).await
        }
        .boxed()
    }

    fn is_alive(&self, record: &MachineRecord) -> bool {
        record.boot_id == BOOT_ID && self.0.lives(record.pid)
    }

    fn attach<'a>(
        &'a self,
        _spec: &'a MachineSpec,
        record: &'a MachineRecord,
    ) -> BoxFuture<'a, Result<Arc<dyn Machine>, AttachFailure>> {
        async move {
            if self.0.strikes(Fault::AttachFails) {
                return Err(AttachFailure::Unreachable { reason: "it was told to fail".to_owned() });
            }
            if !self.is_alive(record) {
                return Err(AttachFailure::Gone);
            }
            Ok(self.0.machine(record))
        }
        .boxed()
    }

    fn halt<'a>(&'a self, spec: &'a MachineSpec, _record: Option<&'a MachineRecord>) -> BoxFuture<'a, ()> {
        async move {
            let short = spec.id.short();
            for (pid, _) in self.0.processes().into_iter().filter(|(_, of)| *of == short) {
                self.0.kill(pid, "halted");
            }
            let _ = fs::remove_dir_all(&spec.run_dir);
        }
        .boxed()
    }

    fn erase<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), EraseFailure>> {
        async move {
            let what = spec.data_dir.display().to_string();
            if self.0.strikes(Fault::EraseFails) {
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

    fn remove_strays<'a>(
        &'a self,
        is_known: &'a (dyn Fn(&str) -> bool + Send + Sync),
    ) -> BoxFuture<'a, Vec<String>> {
        async move {
            let strays: Vec<_> =
                self.0.processes().into_iter().filter(|(_, short)| !is_known(short)).collect();
            for (pid, _) in &strays {
                self.0.kill(*pid, "a stray");
            }
            strays.into_iter().map(|(pid, short)| format!("process {pid} of {short}")).collect()
        }
        .boxed()
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

    fn disk_usage(&self, spec: &MachineSpec) -> Option<DiskUsage> {
        let used_bytes = fs::metadata(spec.data_dir.join("disk.qcow2")).ok()?.len();
        Some(DiskUsage { used_bytes, virtual_bytes: u64::from(spec.resources.disk_gb) << 30 })
    }

    fn host_memory(&self) -> Option<HostMemory> {
        let available_mb = self.0.available_mb.load(Ordering::Relaxed);
        Some(HostMemory { total_mb: 1 << 20, available_mb })
    }

    fn facts(&self) -> BoxFuture<'_, Result<HostFacts, BootFailure>> {
        async { Err(BootFailure::HostUnfit { reason: "this is a world of files".to_owned() }) }.boxed()
    }
}

/// The world as the daemon holds it.
#[derive(Clone, Debug)]
pub(crate) struct Handle(pub(crate) Arc<World>);

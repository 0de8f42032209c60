//! Helpers of these tests: a host with artefacts, and guests that run commands.
#![allow(dead_code, reason = "every test binary uses its own part")]

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agentiso_core::address::mac_for;
use agentiso_core::config::{Accelerator, InitMode, Jail};
use agentiso_core::ids::{SnapshotId, WorkspaceId};
use agentiso_core::names::ImageName;
use agentiso_core::resources::Resources;
use agentiso_disk::qcow2_header::Header;
use agentiso_host::{Booted, Hypervisor, HypervisorSettings, Vm};
use agentiso_sys::Progress;
use agentiso_sys::process::Process;
use agentiso_sys::process::VmRecord;
use agentiso_vm::{BaseImage, Card, ExecSpec, Identity, NetworkIdentity, OnSpawn, VmSpec};

/// Long enough for software emulation on a busy host.
pub(crate) const PATIENCE: Duration = Duration::from_secs(110);

/// The files that VMs are made from.
pub(crate) struct Artefacts {
    pub(crate) kernel: PathBuf,
    pub(crate) initrd: PathBuf,
    pub(crate) disk: PathBuf,
}

/// The artefacts named in the environment, or the reason why there are none.
pub(crate) fn artefacts() -> Result<Artefacts, String> {
    if let Some(dir) = std::env::var_os("AGENTISO_TEST_ARTEFACTS").map(PathBuf::from) {
        let found = Artefacts {
            kernel: dir.join("vmlinuz"),
            initrd: dir.join("initramfs.cpio.gz"),
            disk: dir.join("debian-minimal.qcow2"),
        };
        if let Some(path) =
            [&found.kernel, &found.initrd, &found.disk].into_iter().find(|path| !path.is_file())
        {
            return Err(format!("{} is missing", path.display()));
        }
        return Ok(found);
    }
    let Some(cache) = agentiso_testkit::test_cache() else {
        return Err("neither AGENTISO_TEST_ARTEFACTS nor AGENTISO_TEST_CACHE is set".to_owned());
    };
    let newest = |dir: &str, fits: fn(&Path) -> bool| {
        let entries =
            std::fs::read_dir(cache.join(dir)).into_iter().flatten().flatten().map(|entry| entry.path());
        let fitting = entries.filter(|path| fits(path));
        fitting.max_by_key(|path| path.metadata().and_then(|meta| meta.modified()).ok())
    };
    let kernel = newest("kernels", |path| path.join("vmlinuz").is_file()).map(|path| path.join("vmlinuz"));
    let initrd = newest("initramfs", |path| path.to_string_lossy().ends_with(".cpio.gz"));
    let disk = cache.join("images/debian-minimal/disk.qcow2");
    match (kernel, initrd, disk.is_file()) {
        (Some(kernel), Some(initrd), true) => Ok(Artefacts { kernel, initrd, disk }),
        _ => Err(format!("{} has no kernel, initramfs or debian-minimal image", cache.display())),
    }
}

/// The artefacts; if there are none, records a skip and returns from the test.
#[macro_export]
macro_rules! artefacts_or_skip {
    () => {
        match common::artefacts() {
            Ok(artefacts) => artefacts,
            Err(reason) => {
                agentiso_testkit::record_skip(&reason);
                return;
            }
        }
    };
}

pub(crate) struct TestHost {
    pub(crate) hypervisor: Hypervisor,
    pub(crate) settings: HypervisorSettings,
    pub(crate) image: BaseImage,
    dir: tempfile::TempDir,
    next_address: AtomicU8,
    made: Mutex<Vec<VmRecord>>,
}

/// A failed test leaves no VM behind, although dropping a [`Vm`] does not end it.
impl Drop for TestHost {
    fn drop(&mut self) {
        for record in self.made.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            if let Ok(Some(process)) = Process::find(&record) {
                process.kill();
            }
        }
    }
}

impl TestHost {
    /// A host with templates that all tests share: made once, by the first test.
    pub(crate) async fn sharing(artefacts: &Artefacts) -> Self {
        let templates = Path::new(env!("CARGO_TARGET_TMPDIR")).join("host-templates");
        let host = Self::with_templates(artefacts, templates).await;
        // Templates of earlier builds of the guest are useless.
        host.hypervisor.templates().prune(&HashSet::from([host.image.id.clone()])).unwrap();
        host
    }

    /// A host without templates.
    pub(crate) async fn fresh(artefacts: &Artefacts) -> Self {
        let templates = tempfile::tempdir().unwrap().keep();
        let mut host = Self::with_templates(artefacts, templates.clone()).await;
        // The directory is removed with the host.
        let own = host.dir.path().join("templates");
        std::fs::rename(&templates, &own).or_else(|_| std::fs::create_dir(&own)).unwrap();
        host.settings.templates_dir = own;
        host.hypervisor = Hypervisor::open(host.settings.clone()).await.unwrap();
        host
    }

    async fn with_templates(artefacts: &Artefacts, templates_dir: PathBuf) -> Self {
        // `RUST_LOG=agentiso_host=debug` shows how long each step of a boot takes.
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
        let dir = tempfile::Builder::new().prefix("ah").tempdir_in("/tmp").unwrap();
        let settings = HypervisorSettings {
            qemu_binary: std::env::var_os("AGENTISO_TEST_QEMU").unwrap_or("qemu-system-x86_64".into()).into(),
            accelerator: Accelerator::Auto,
            kernel: artefacts.kernel.clone(),
            initrd: artefacts.initrd.clone(),
            kernel_append: std::env::var("AGENTISO_TEST_KERNEL_APPEND").unwrap_or_default(),
            boot_timeout: PATIENCE,
            templates_dir,
            templates: true,
            run_dir: dir.path().join("run"),
            probe_file: dir.path().join("probe.json"),
            cgroups: None,
            jail: Jail::Required,
            nested: false,
        };
        let hypervisor = Hypervisor::open(settings.clone()).await.unwrap();
        let image = BaseImage {
            name: ImageName::parse("debian-minimal").unwrap(),
            id: format!("{:?}", artefacts.disk.metadata().unwrap().modified().unwrap()),
            virtual_size: Header::read(&artefacts.disk).unwrap().virtual_size,
            disk: artefacts.disk.clone(),
        };
        Self { hypervisor, settings, image, dir, next_address: AtomicU8::new(2), made: Mutex::default() }
    }

    pub(crate) fn spec(&self, resources: Resources) -> VmSpec {
        let id = WorkspaceId::random();
        let network = NetworkIdentity {
            mac: mac_for(&id),
            address: Ipv4Addr::new(10, 42, 0, self.next_address.fetch_add(1, Ordering::Relaxed)),
            prefix: 16,
            gateway: Ipv4Addr::new(10, 42, 0, 1),
            dns: vec![Ipv4Addr::new(10, 42, 0, 1)],
        };
        VmSpec {
            id,
            resources,
            base_image: self.image.clone(),
            data_dir: self.dir.path().join("workspaces").join(id.to_string()),
            run_dir: self.settings.run_dir.join(id.short()),
            card: Card::Socket(self.settings.run_dir.join(format!("n-{}.d/s", id.short()))),
            init_mode: InitMode::Fast,
            identity: Identity {
                hostname: format!("ws-{}", id.short()),
                machine_id: id.as_uuid().simple().to_string(),
                network: Some(network),
            },
        }
    }

    pub(crate) async fn ensure_image(&self, resources: Resources) {
        let templates = self.hypervisor.templates();
        templates.ensure_image(&self.image, resources, InitMode::Fast, &Progress::silent()).await.unwrap();
    }

    pub(crate) async fn create(&self, spec: &VmSpec) -> Booted {
        let booted = self.hypervisor.create(spec, &OnSpawn::default(), &Progress::silent()).await.unwrap();
        self.made.lock().unwrap().push(booted.vm.record().clone());
        booted
    }

    /// Registers a VM that was not made by [`TestHost::create`], so that it is ended with the host.
    pub(crate) fn watch(&self, booted: Booted) -> Booted {
        self.made.lock().unwrap().push(booted.vm.record().clone());
        booted
    }

    /// A running fork of a snapshot.
    pub(crate) async fn fork(&self, source: &VmSpec, snapshot: SnapshotId) -> (VmSpec, Booted) {
        let fork = self.spec(source.resources);
        self.hypervisor.branch(source, snapshot, &fork).await.unwrap();
        let booted =
            self.hypervisor.create_branch(&fork, &OnSpawn::default(), &Progress::silent()).await.unwrap();
        (fork, self.watch(booted))
    }

    /// Takes a snapshot and returns its id.
    pub(crate) async fn snapshot(&self, spec: &VmSpec, vm: &Vm, memory: bool) -> SnapshotId {
        let id = SnapshotId::random();
        let taken = self.hypervisor.snapshot(spec, vm, id, memory, &Progress::silent()).await;
        taken.unwrap();
        id
    }

    /// Everything in the host's run directory, except the sockets at which a daemon would listen for network cards.
    pub(crate) fn run_entries(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.settings.run_dir).into_iter().flatten().flatten();
        let is_net =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("n-"));
        entries.map(|entry| entry.path()).filter(|path| !is_net(path)).collect()
    }
}

pub(crate) const SMALL: Resources = Resources { vcpus: 1, memory_mb: 256, disk_gb: 2 };

/// Runs a command in the guest and returns what it printed, trimmed.
pub(crate) async fn sh(vm: &Vm, command: &str) -> String {
    let agent = vm.agent().await.unwrap();
    let stream = agent.exec(ExecSpec::shell(command).within(Duration::from_secs(60))).await.unwrap();
    let outcome = stream.outcome().await.unwrap();
    let text = |captured: &agentiso_vm::Captured| String::from_utf8_lossy(&captured.head).into_owned();
    assert_eq!(outcome.exit_code, Some(0), "{command}: {}{}", text(&outcome.stdout), text(&outcome.stderr));
    text(&outcome.stdout).trim().to_owned()
}

/// Starts a process that counts in a file, twenty times a second, and outlives the command that started it.
pub(crate) async fn start_counter(vm: &Vm) {
    let counter = "n=0; while :; do n=$((n+1)); echo $n > /root/count; sleep 0.05; done";
    sh(vm, &format!("setsid sh -c '{counter}' >/dev/null 2>&1 &")).await;
    wait_for_count(vm, 1).await;
}

/// Waits until the counter has reached a number. Its file is empty for a moment whenever it is written.
pub(crate) async fn wait_for_count(vm: &Vm, at_least: u64) -> u64 {
    let wait = format!(
        "until n=$(cat /root/count 2>/dev/null); [ ${{n:-0}} -ge {at_least} ]; do sleep 0.05; done; echo $n"
    );
    sh(vm, &wait).await.parse().unwrap()
}

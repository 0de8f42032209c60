//! The facade for all operations on VMs of this host.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agentiso_agent::{AgentClient, AgentError};
use agentiso_core::config;
use agentiso_core::ids::{SnapshotId, WorkspaceId};
use agentiso_disk::{DiskError, KeyframeDue, Qcow2Storage, Storage};
use agentiso_sys::Progress;
use agentiso_sys::cgroup::Cgroups;
use agentiso_sys::fault;
use agentiso_sys::files::FileError;
use agentiso_sys::hex;
use agentiso_sys::jail::{self, Jail, JailError};
use agentiso_sys::process::{Process, ProcessError, VmRecord, host_boot_id};
use agentiso_vm::{AttachFailure, OnSpawn, SnapshotDiff, Stray, VmSpec, VolumeSizes};
use sha2::{Digest, Sha256};
use thiserror::Error;
use tokio::sync::broadcast;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Booted;
use crate::accelerator::{self, Chosen, HostCpu, ProbeKey, Verdict};
use crate::boot::BootError;
use crate::boot::bring_up::as_of_now;
use crate::boot::ladder::Ladder;
use crate::boot::launch::{Host, Start, agent_socket, console_socket, qmp_socket, stderr_pipe};
use crate::qemu::argv::{Begin, Memory, Shape};
use crate::qemu::kernel_args::kernel_args;
use crate::qemu::version::{Qemu, QemuError};
use crate::qmp::{Event, QmpClient, QmpError};
use crate::snapshot::take::Taking;
use crate::snapshot::{SnapshotError, compact, compare, memory};
use crate::strays::{self, Says};
use crate::templates::Templates;
use crate::templates::key::{HostInputs, Inputs};
use crate::templates::store::{Store, Template};
use crate::vm::{Parts, Recorder, Source, Vm, room};

/// If KVM works, a kernel is up within two seconds; otherwise it never comes up.
const PROBE_DEADLINE: Duration = Duration::from_secs(20);

/// The smallest VM that boots.
const PROBE_SHAPE: Shape = Shape { vcpus: 1, memory_mb: 256 };

/// The time that the agent of an already running VM may take to answer.
const ATTACH_DEADLINE: Duration = Duration::from_secs(30);

/// A process has no command line for a moment when it starts, and again before it is gone, longest if it has much
/// memory.
const NO_COMMAND_LINE: Duration = Duration::from_secs(5);

/// The settings for running VMs on a host.
#[derive(Clone, Debug)]
pub struct HypervisorSettings {
    pub qemu_binary: PathBuf,
    pub accelerator: config::Accelerator,
    pub kernel: PathBuf,
    pub initrd: PathBuf,
    /// Appended to the kernel's command line.
    pub kernel_append: String,
    pub boot_timeout: Duration,
    pub templates_dir: PathBuf,
    /// If false, every VM boots cold.
    pub templates: bool,
    /// The directory that holds every VM's run directory.
    pub run_dir: PathBuf,
    pub probe_file: PathBuf,
    /// The parent of every VM's cgroup; `None`: VMs have none.
    pub cgroups: Option<Cgroups>,
    pub jail: config::Jail,
    /// Whether guests may run VMs themselves.
    pub nested: bool,
}

#[derive(Debug, Error)]
pub enum HypervisorError {
    #[error(transparent)]
    Qemu(#[from] QemuError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("vm.accelerator is set to kvm, but KVM does not work on this host: {reason}")]
    NoKvm { reason: String },
    #[error("vm.jail is set to required, but {reason}; {}, or set vm.jail to auto", reason.fix())]
    NoJail { reason: JailError },
    /// The host must never get a weaker jail than it supports: the next attempt probes again.
    #[error("vm.jail: {reason}; {}", reason.fix())]
    UndecidedJail { reason: JailError },
}

#[derive(Debug, Error)]
pub enum AttachError {
    /// The process is gone, or the pid belongs to another process.
    #[error("the VM is no longer running")]
    Gone,
    /// It is the process that was started, but its command line is another one. Only a QEMU that its guest has taken
    /// over does that.
    #[error("process {pid} is the QEMU that agentiso started, but its command line has changed")]
    Altered { pid: i32 },
    #[error(transparent)]
    CommandLine(#[from] FileError),
    #[error("its sockets are in {}, which is no longer below vm.run_dir", run_dir.display())]
    Elsewhere { run_dir: PathBuf },
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Qmp(#[from] QmpError),
    #[error("the VM runs, but its agent does not answer: {0}")]
    Agent(#[from] AgentError),
}

/// The failure as the daemon tells it apart.
impl From<AttachError> for AttachFailure {
    fn from(error: AttachError) -> Self {
        match error {
            AttachError::Gone => Self::Gone,
            AttachError::Altered { .. } => Self::Altered { reason: error.to_string() },
            AttachError::CommandLine(_)
            | AttachError::Elsewhere { .. }
            | AttachError::Process(_)
            | AttachError::Qmp(_)
            | AttachError::Agent(_) => Self::Unreachable { reason: error.to_string() },
        }
    }
}

/// The capabilities of this host, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    pub accelerator: Chosen,
    pub accelerator_reason: String,
    pub qemu_version: String,
    pub qemu_path: PathBuf,
    pub transport: &'static str,
    pub storage: &'static str,
    pub jail: Jail,
    /// The reason why there is no jail, if there is none.
    pub jail_reason: String,
}

/// The VMs of this host. Clones share everything.
#[derive(Clone, Debug)]
pub struct Hypervisor {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    host: Host,
    inputs: HostInputs,
    verdict: Verdict,
    templates: Templates,
    run_dir: PathBuf,
    jail_reason: String,
}

impl Hypervisor {
    /// Finds QEMU and decides on the accelerator, which may take a probe boot.
    pub async fn open(mut settings: HypervisorSettings) -> Result<Self, HypervisorError> {
        let qemu = Qemu::find(&settings.qemu_binary).await?;
        let cpu = HostCpu::read()?;
        let hashes = (sha256_of(&settings.kernel).await?, sha256_of(&settings.initrd).await?);
        let (jail, jail_reason) = match jail::find(&qemu.path, settings.jail).await {
            Ok(jail) => (jail, jail.describe().to_owned()),
            Err(reason @ JailError::Undecided(_)) => return Err(HypervisorError::UndecidedJail { reason }),
            Err(reason) if settings.jail == config::Jail::Required => {
                return Err(HypervisorError::NoJail { reason });
            }
            Err(reason) => (Jail::None, reason.to_string()),
        };
        for (file, sha256) in [(&mut settings.kernel, &hashes.0), (&mut settings.initrd, &hashes.1)] {
            *file = jail::readable_copy(jail, file, &settings.templates_dir, sha256)?;
        }
        let verdict = settle(&settings, &qemu, &cpu, jail, &hashes.0).await?;
        let inputs = HostInputs::new(
            &qemu,
            (verdict.accelerator, settings.nested),
            &cpu,
            hashes,
            &settings.kernel_append,
        );
        let host = host(&settings, &qemu, &cpu, jail, verdict.accelerator);
        let store = Store::open(&settings.templates_dir)?;
        let templates =
            Templates::new(host.clone(), inputs.clone(), store, settings.run_dir.clone(), settings.templates);
        Ok(Self {
            inner: Arc::new(Inner {
                host,
                inputs,
                verdict,
                templates,
                run_dir: settings.run_dir,
                jail_reason,
            }),
        })
    }

    pub fn facts(&self) -> HostFacts {
        HostFacts {
            accelerator: self.inner.verdict.accelerator,
            accelerator_reason: self.inner.verdict.reason.clone(),
            qemu_version: self.inner.host.qemu.version_line.clone(),
            qemu_path: self.inner.host.qemu.path.clone(),
            transport: "virtio-serial",
            storage: "qcow2",
            jail: self.inner.host.jail,
            jail_reason: self.inner.jail_reason.clone(),
        }
    }

    /// The parent of the cgroups of programs that work for VMs.
    pub(crate) fn cgroups(&self) -> Option<&Cgroups> {
        self.inner.host.cgroups.as_ref()
    }

    pub fn templates(&self) -> &Templates {
        &self.inner.templates
    }

    /// Makes a disk and starts a VM on it in the fastest available way. On an error, or when the future is dropped,
    /// everything is removed.
    pub async fn create(
        &self,
        spec: &VmSpec,
        spawned: &OnSpawn,
        progress: &Progress,
    ) -> Result<Booted, BootError> {
        self.ladder(spec, spawned, progress).create().await
    }

    /// Starts a VM on its existing disk.
    pub async fn start(
        &self,
        spec: &VmSpec,
        spawned: &OnSpawn,
        progress: &Progress,
    ) -> Result<Booted, BootError> {
        self.come_up(spec, spawned, Ok(None), progress).await
    }

    /// Starts a VM in the state of a snapshot. The workspace must not have a running VM.
    pub async fn restore(
        &self,
        spec: &VmSpec,
        snapshot: SnapshotId,
        spawned: &OnSpawn,
        progress: &Progress,
    ) -> Result<Booted, BootError> {
        Qcow2Storage.restore(&spec.data_dir, snapshot).await?;
        fault::point("restore.switched");
        let memory = memory::of_snapshot(&spec.data_dir, snapshot, &self.memory_inputs(spec));
        self.come_up(spec, spawned, memory, progress).await
    }

    /// Gives a new workspace the disk, and the memory if there is one, of another workspace's snapshot. Nothing of the
    /// source is needed afterwards.
    pub async fn branch(
        &self,
        source: &VmSpec,
        snapshot: SnapshotId,
        fork: &VmSpec,
    ) -> Result<(), SnapshotError> {
        Qcow2Storage.fork(&source.data_dir, snapshot, &fork.data_dir).await?;
        Ok(memory::link(&source.data_dir, snapshot, &fork.data_dir)?)
    }

    /// Starts the VM of a workspace that [`Hypervisor::branch`] made.
    pub async fn create_branch(
        &self,
        fork: &VmSpec,
        spawned: &OnSpawn,
        progress: &Progress,
    ) -> Result<Booted, BootError> {
        let memory = memory::of_fork(&fork.data_dir, &self.memory_inputs(fork));
        let booted = self.come_up(fork, spawned, memory, progress).await?;
        memory::unlink(&fork.data_dir)?;
        Ok(booted)
    }

    async fn come_up(
        &self,
        spec: &VmSpec,
        spawned: &OnSpawn,
        memory: Result<Option<Template>, String>,
        progress: &Progress,
    ) -> Result<Booted, BootError> {
        let ladder = self.ladder(spec, spawned, progress);
        match memory.transpose() {
            None => ladder.start().await,
            Some(memory) => ladder.resume(memory).await,
        }
    }

    /// Lets a stopped guest go on, or returns which space is missing for that.
    pub async fn go_on(&self, spec: &VmSpec, vm: &Vm) -> Result<Option<String>, SnapshotError> {
        let missing = room::missing(spec)?;
        if missing.is_none() {
            room::watch(spec, vm.qmp()).await;
            vm.wake().await?;
        }
        Ok(missing)
    }

    pub(crate) fn host_inputs(&self) -> &HostInputs {
        &self.inner.inputs
    }

    fn memory_inputs(&self, spec: &VmSpec) -> Inputs {
        memory::inputs(&self.inner.inputs, spec.resources.into())
    }

    /// Takes a snapshot of a running VM. Returns how long its guest was stopped.
    pub async fn snapshot(
        &self,
        spec: &VmSpec,
        vm: &Vm,
        snapshot: SnapshotId,
        include_memory: bool,
        progress: &Progress,
    ) -> Result<Duration, SnapshotError> {
        let taking = Taking {
            host: &self.inner.host,
            inputs: &self.inner.inputs,
            run_root: &self.inner.run_dir,
            spec,
            vm,
            progress,
        };
        let pause = taking.run(snapshot, include_memory).await;
        // The guest may write to another file after a success or a failure.
        room::watch(spec, vm.qmp()).await;
        pause
    }

    /// Removes a snapshot and frees the space that only it used. `vm` is given if the VM runs.
    pub async fn delete_snapshot(
        &self,
        spec: &VmSpec,
        vm: Option<&Vm>,
        snapshot: SnapshotId,
    ) -> Result<(), SnapshotError> {
        memory::remove(&spec.data_dir, snapshot)?;
        Qcow2Storage.forget_snapshot(&spec.data_dir, snapshot).await?;
        self.compact(spec, vm).await;
        Ok(())
    }

    /// Compares a workspace's disk with a snapshot of it. `vm` is given if the VM runs.
    pub async fn diff(
        &self,
        spec: &VmSpec,
        vm: Option<&Vm>,
        snapshot: SnapshotId,
        cancelled: &CancellationToken,
    ) -> Result<SnapshotDiff, SnapshotError> {
        let dir = &spec.data_dir;
        let Some(vm) = vm else {
            return compare::compare(dir, snapshot, None, cancelled).await;
        };
        // The head of a running VM cannot be read from outside, so it is frozen in a temporary snapshot.
        let now = SnapshotId::random();
        self.snapshot(spec, vm, now, false, &Progress::silent()).await?;
        let compared = compare::compare(dir, snapshot, Some(now), cancelled).await;
        self.delete_snapshot(spec, Some(vm), now).await?;
        compared
    }

    /// Finishes or undoes operations that a crash interrupted, and removes snapshots that are not among the known ones.
    pub async fn settle(
        &self,
        spec: &VmSpec,
        vm: Option<&Vm>,
        known: &[SnapshotId],
    ) -> Result<(), SnapshotError> {
        let head = match vm {
            Some(vm) => Some(vm.qmp().disk_head(&spec.data_dir).await?.file),
            None => None,
        };
        Qcow2Storage.settle(&spec.data_dir, head.as_deref(), known).await?;
        self.compact(spec, vm).await;
        Ok(())
    }

    /// Merges and shortens the chain of an idle workspace as far as possible. Returns soon when interrupted.
    pub async fn tidy(
        &self,
        spec: &VmSpec,
        vm: &Vm,
        interrupted: &CancellationToken,
    ) -> Result<(), SnapshotError> {
        compact::online(&spec.data_dir, vm.qmp(), interrupted).await?;
        compact::shorten(&spec.data_dir, Some(vm.qmp()), KeyframeDue::AT_REST, interrupted).await?;
        room::watch(spec, vm.qmp()).await;
        Ok(())
    }

    /// Shortens a long chain if that is quick, without waiting for an idle time: a client that takes snapshots in a row
    /// may never leave one.
    pub async fn shorten(&self, spec: &VmSpec, vm: &Vm) -> Result<(), SnapshotError> {
        let never = CancellationToken::new();
        compact::shorten(&spec.data_dir, Some(vm.qmp()), KeyframeDue::IN_A_ROW, &never).await
    }

    /// Space that is not freed here is freed by the next delete or start.
    async fn compact(&self, spec: &VmSpec, vm: Option<&Vm>) {
        let never = CancellationToken::new();
        let compacted = match vm {
            Some(vm) => {
                let compacted = compact::online(&spec.data_dir, vm.qmp(), &never).await;
                room::watch(spec, vm.qmp()).await;
                compacted
            }
            None => match compact::offline(&spec.data_dir).await {
                Ok(()) => compact::shorten(&spec.data_dir, None, KeyframeDue::AT_REST, &never).await,
                Err(error) => Err(error),
            },
        };
        if let Err(error) = compacted {
            tracing::warn!(workspace = %spec.id, %error, "could not merge the layers of deleted snapshots");
        }
    }

    fn ladder<'a>(&'a self, spec: &'a VmSpec, spawned: &'a OnSpawn, progress: &'a Progress) -> Ladder<'a> {
        Ladder { host: &self.inner.host, templates: &self.inner.templates, spec, spawned, progress }
    }

    /// Gives a VM of the warm pool the identity of its workspace.
    pub async fn identify(&self, spec: &VmSpec, vm: &Vm) -> Result<(), BootError> {
        let identity = as_of_now(&spec.identity).map_err(BootError::Entropy)?;
        let identified = async { vm.agent().await?.identify(identity).await };
        identified.await.map(drop).map_err(|error| BootError::Agent { error, console_tail: String::new() })
    }

    /// Attaches to a VM that an earlier daemon started. Its guest is not touched.
    pub async fn attach(&self, spec: &VmSpec, record: &VmRecord) -> Result<Vm, AttachError> {
        let process = Process::find(record)?.ok_or(AttachError::Gone)?;
        // The start time identifies the recorded process; the command line confirms that it is this workspace's QEMU.
        let command_line = || strays::command_line_of(record.pid, spec.id, &spec.run_dir);
        let mut says = command_line()?;
        if says == Says::Other {
            if tokio::time::timeout(NO_COMMAND_LINE, process.wait()).await.is_ok() {
                return Err(AttachError::Gone);
            }
            says = command_line()?;
        }
        match says {
            Says::Vm => {}
            Says::Elsewhere(run_dir) => return Err(AttachError::Elsewhere { run_dir }),
            Says::Other => return Err(AttachError::Altered { pid: record.pid }),
        }
        if self.inner.host.jail.holds() && jail::of_process(record.pid) == Some(Jail::None) {
            tracing::warn!(workspace = %spec.id, "the VM runs without a jail until it is restarted");
        }
        let qmp = QmpClient::connect(&qmp_socket(&spec.run_dir)).await?;
        let events = qmp.events();
        let (mut sources, mut unrecorded) = (Vec::new(), Vec::new());
        for (source, log) in [
            (Source::console(&console_socket(&spec.run_dir), &spec.console_log()), spec.console_log()),
            (Source::pipe(&stderr_pipe(&spec.run_dir), &spec.stderr_log()), spec.stderr_log()),
        ] {
            match source {
                Ok(source) => sources.push(source),
                Err(error) => {
                    // A VM that an older agentiso started writes its logs itself.
                    tracing::debug!(workspace = %spec.id, %error, "cannot read the output of the VM");
                    unrecorded.push(log);
                }
            }
        }
        // A VM without logs is better than none.
        let recorder = Recorder::start(sources).unwrap_or_else(|error| {
            tracing::warn!(workspace = %spec.id, %error, "the output of the VM is not logged");
            Recorder::without_sources()
        });
        // The process that paused it for a moment is gone.
        qmp.wake().await?;
        let agent_socket = agent_socket(&spec.run_dir);
        let connecting = AgentClient::connect(&agent_socket, Instant::now() + ATTACH_DEADLINE);
        let agent = tokio::select! {
            // The end is checked first, because the agent of a VM that has ended never answers.
            biased;
            _ = process.wait() => return Err(AttachError::Gone),
            // Its disk is full: it answers when there is space.
            () = stalls(qmp.events()) => None,
            agent = connecting => Some(agent?),
        };
        let answers = agent.is_some();
        let vm = Vm::new(Parts {
            id: spec.id,
            process,
            qmp,
            events,
            agent,
            agent_socket,
            run_dir: spec.run_dir.clone(),
            recorder,
            unrecorded,
            console_log: spec.console_log(),
            stderr_log: spec.stderr_log(),
        });
        if answers {
            vm.catch_up().await;
        }
        Ok(vm)
    }

    /// VMs of ours that are not among the known ones. Those started by this process are not strays.
    pub fn find_strays(&self, known: &HashSet<VmRecord>) -> Result<Vec<Stray>, FileError> {
        strays::find_strays(&self.inner.run_dir, known)
    }

    /// The most disk space of the host that a copy of a VM's memory takes while it is made.
    pub fn bytes_while_copying(&self, vm_bytes: u64) -> u64 {
        crate::snapshot::bytes_while_copying(self.inner.host.qemu.version, vm_bytes)
    }

    /// The used and the available space of a workspace's disk and snapshots.
    pub async fn volume_sizes(&self, spec: &VmSpec) -> Result<VolumeSizes, DiskError> {
        Qcow2Storage.sizes(&spec.data_dir).await
    }
}

/// Resolves when the guest is stopped because one of its writes found no space.
async fn stalls(mut events: broadcast::Receiver<Event>) {
    loop {
        match events.recv().await {
            Ok(event) if matches!(event.stall(), Some(Some(_))) => return,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

fn host(settings: &HypervisorSettings, qemu: &Qemu, cpu: &HostCpu, jail: Jail, accelerator: Chosen) -> Host {
    Host {
        qemu: qemu.clone(),
        accelerator,
        kernel: settings.kernel.clone(),
        initrd: settings.initrd.clone(),
        kernel_args: kernel_args(accelerator, cpu.tsc_khz, &settings.kernel_append),
        boot_timeout: settings.boot_timeout,
        cgroups: settings.cgroups.clone(),
        jail,
        nested: settings.nested,
    }
}

/// Decides on the accelerator: the configured one, the remembered one, or the result of a probe boot.
async fn settle(
    settings: &HypervisorSettings,
    qemu: &Qemu,
    cpu: &HostCpu,
    jail: Jail,
    kernel_sha256: &str,
) -> Result<Verdict, HypervisorError> {
    let tcg = |reason: String| Verdict { accelerator: Chosen::Tcg, reason };
    let must = match settings.accelerator {
        config::Accelerator::Tcg => return Ok(tcg("vm.accelerator is set to tcg".to_owned())),
        config::Accelerator::Auto => false,
        config::Accelerator::Kvm => true,
    };
    let refused = |reason: String| match must {
        true => Err(HypervisorError::NoKvm { reason }),
        false => Ok(tcg(format!("software emulation, because {reason}"))),
    };
    if !cpu.has_virtualization {
        return refused("the processor offers no hardware virtualization (neither vmx nor svm)".to_owned());
    }
    if let Err(reason) = accelerator::open_kvm(Path::new("/dev/kvm")) {
        return refused(reason);
    }
    let key = ProbeKey {
        host_boot_id: host_boot_id(),
        qemu: format!("{} {} {}", qemu.version_line, qemu.size, qemu.modified_ns),
        kernel_sha256: kernel_sha256.to_owned(),
    };
    let verdict = match accelerator::recall(&settings.probe_file, &key) {
        Some(verdict) => verdict,
        None => {
            let verdict = probe(settings, qemu, cpu, jail).await?;
            accelerator::remember(&settings.probe_file, &key, &verdict)?;
            verdict
        }
    };
    match verdict.accelerator {
        Chosen::Kvm => Ok(verdict),
        Chosen::Tcg => refused(verdict.reason),
    }
}

/// Boots the real kernel under KVM until its agent answers.
async fn probe(
    settings: &HypervisorSettings,
    qemu: &Qemu,
    cpu: &HostCpu,
    jail: Jail,
) -> Result<Verdict, HypervisorError> {
    let host = host(settings, qemu, cpu, jail, Chosen::Kvm);
    let id = WorkspaceId::random();
    let run_dir = settings.run_dir.join(format!("t-{}", id.short()));
    let start = Start {
        id,
        shape: PROBE_SHAPE,
        memory: Memory::Private,
        begin: Begin::Boot,
        layers: Vec::new(),
        card: None,
        console_log: run_dir.join("console.log"),
        stderr_log: run_dir.join("stderr.log"),
        run_dir,
    };
    let began = Instant::now();
    let boot = async {
        let launched = host.spawn(&start)?.answering().await?;
        launched.greet(began + PROBE_DEADLINE).await.map(drop)
    };
    Ok(match tokio::time::timeout(PROBE_DEADLINE, boot).await {
        Ok(Ok(())) => Verdict {
            accelerator: Chosen::Kvm,
            reason: format!("a probe boot under KVM took {} ms", began.elapsed().as_millis()),
        },
        Ok(Err(error)) => {
            Verdict { accelerator: Chosen::Tcg, reason: format!("a probe boot under KVM failed: {error}") }
        }
        Err(_elapsed) => Verdict {
            accelerator: Chosen::Tcg,
            reason: format!("a probe boot under KVM did not finish within {} s", PROBE_DEADLINE.as_secs()),
        },
    })
}

async fn sha256_of(path: &Path) -> Result<String, FileError> {
    let path = path.to_owned();
    let hashing = tokio::task::spawn_blocking(move || {
        let read = || {
            let mut hasher = Sha256::new();
            let mut file = std::fs::File::open(&path)?;
            let mut block = vec![0; 1 << 20];
            loop {
                match std::io::Read::read(&mut file, &mut block)? {
                    0 => return Ok(hex(&hasher.finalize())),
                    n => hasher.update(&block[..n]),
                }
            }
        };
        read().map_err(FileError::at("read", &path))
    });
    hashing.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

//! Starts QEMU with its sockets, as one value that undoes everything when dropped.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use agentiso_sys::cgroup::Cgroups;
use agentiso_sys::files::{self, FileError};
use agentiso_sys::jail::Jail;
use agentiso_sys::process::{Launch, Priority, Process};
use agentiso_vm::Card;
use tokio::sync::broadcast;

use super::console;
use super::equipment::Equipment;
use super::error::BootError;
use crate::accelerator::Chosen;
use crate::qemu::argv::{Begin, Memory, Shape, Vm, argv};
use crate::qemu::version::Qemu;
use crate::qmp::{Event, QmpClient};
use crate::vm::{ExitReason, Recorder, Source, make_pipe};

/// The kernel's `sun_path`, less its terminating NUL.
const MAX_SOCKET_PATH: usize = 107;

/// The facts that are the same for all VMs on this host.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) qemu: Qemu,
    pub(crate) accelerator: Chosen,
    pub(crate) kernel: PathBuf,
    pub(crate) initrd: PathBuf,
    pub(crate) kernel_args: String,
    pub(crate) boot_timeout: Duration,
    /// `None`: VMs are counted in this process's cgroup.
    pub(crate) cgroups: Option<Cgroups>,
    pub(crate) jail: Jail,
    /// Whether guests may run VMs themselves.
    pub(crate) nested: bool,
}

/// One QEMU to be started.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) id: WorkspaceId,
    pub(crate) shape: Shape,
    pub(crate) memory: Memory,
    pub(crate) begin: Begin,
    /// The files of its disk, from the head down to the image. Empty: it has no disk.
    pub(crate) layers: Vec<PathBuf>,
    pub(crate) run_dir: PathBuf,
    /// `None`: its network card stays unconnected.
    pub(crate) card: Option<Card>,
    pub(crate) console_log: PathBuf,
    pub(crate) stderr_log: PathBuf,
}

pub(crate) fn qmp_socket(run_dir: &Path) -> PathBuf {
    run_dir.join("qmp.sock")
}

pub(crate) fn agent_socket(run_dir: &Path) -> PathBuf {
    run_dir.join("agent.sock")
}

pub(crate) fn console_socket(run_dir: &Path) -> PathBuf {
    run_dir.join("tty.sock")
}

/// The pipe that QEMU's standard streams go to.
pub(crate) fn stderr_pipe(run_dir: &Path) -> PathBuf {
    run_dir.join("stderr.pipe")
}

/// A QEMU that runs and answers. When dropped, it is killed and its sockets are removed; [`Launched::keep`] hands it
/// over instead.
#[derive(Debug)]
pub(crate) struct Launched {
    undo: Undo,
    process: Process,
    qmp: QmpClient,
    run_dir: PathBuf,
    recorder: Recorder,
    console_log: PathBuf,
    stderr_log: PathBuf,
}

/// The process and the sockets of a VM that has no owner yet.
#[derive(Debug)]
struct Undo {
    process: Option<Process>,
    run_dir: Option<PathBuf>,
}

impl Undo {
    fn disarm(mut self) {
        self.process = None;
        self.run_dir = None;
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill_and_forget();
        }
        if let Some(dir) = self.run_dir.take()
            && let Err(error) = files::remove_dir(&dir)
        {
            tracing::warn!(%error, "could not remove the sockets of a VM that did not start");
        }
    }
}

impl Host {
    /// Starts the process. It does not answer yet.
    pub(crate) fn spawn(&self, start: &Start) -> Result<Spawned, BootError> {
        // No process uses the files of an earlier run of this VM, because it never has more than one process.
        files::remove_dir(&start.run_dir)?;
        files::make_private_dir(&start.run_dir)?;
        let mut undo = Undo { process: None, run_dir: Some(start.run_dir.clone()) };
        let qmp = listen(&qmp_socket(&start.run_dir))?;
        let agent = listen(&agent_socket(&start.run_dir))?;
        let console_fd = listen(&console_socket(&start.run_dir))?;
        let log = stderr_pipe(&start.run_dir);
        make_pipe(&log)?;
        // Opened before QEMU starts, so that nothing it prints is lost.
        let console = Source::console(&console_socket(&start.run_dir), &start.console_log)?;
        let errors = Source::pipe(&log, &start.stderr_log)?;
        let nowhere = Card::Socket(start.run_dir.join("net.sock"));
        let equipment = Equipment::new(self, start)?;
        let arguments = argv(&Vm {
            qemu: self.qemu.version,
            accelerator: self.accelerator,
            id: start.id,
            shape: start.shape,
            memory: start.memory.clone(),
            begin: start.begin,
            kernel: &self.kernel,
            initrd: &self.initrd,
            kernel_args: &self.kernel_args,
            layers: &equipment.layers,
            run_dir: &start.run_dir,
            card: start.card.as_ref().unwrap_or(&nowhere),
            card_fd: equipment.card.as_ref().map(AsRawFd::as_raw_fd),
            kvm: equipment.kvm,
            nested: self.nested,
            qmp_fd: qmp.as_raw_fd(),
            agent_fd: agent.as_raw_fd(),
            console_fd: console_fd.as_raw_fd(),
        });
        let program = self.qemu.path.clone();
        let priority = match start.memory {
            // This VM serves no workspace: its memory becomes a template.
            Memory::Recorded(_) => Priority::Background,
            Memory::Private | Memory::Template(_) => Priority::Ordinary,
        };
        let Equipment { mut opened, card, cell, .. } = equipment;
        opened.extend(card);
        opened.extend([qmp, agent, console_fd]);
        let inherited = opened;
        let groups = self.cgroups.as_ref();
        let group = groups
            .map(|groups| groups.group(&start.run_dir, start.shape.vcpus, start.shape.memory_mb))
            .transpose()?;
        let process = Launch { program, arguments, log, inherited, priority, group, cell }.spawn()?;
        tracing::debug!(workspace = %start.id, pid = process.pid(), "QEMU started");
        undo.process = Some(process.clone());
        // From here on QEMU has the pipe open for writing, so the recorder does not take it for ended.
        let recorder = Recorder::start(vec![console, errors])?;
        Ok(Spawned { undo, process, recorder, start: start.clone() })
    }
}

/// A QEMU that was started but may not answer yet; see [`Spawned::answering`].
pub(crate) struct Spawned {
    undo: Undo,
    process: Process,
    recorder: Recorder,
    start: Start,
}

impl Spawned {
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// Waits until QEMU answers on its control socket.
    pub(crate) async fn answering(self) -> Result<Launched, BootError> {
        let socket = qmp_socket(&self.start.run_dir);
        let connecting = QmpClient::connect(&socket);
        let qmp = tokio::select! {
            // An answer takes precedence over an exit that followed it.
            biased;
            qmp = connecting => qmp,
            exit = self.process.wait() => {
                self.recorder.drained().await;
                let reason = ExitReason::of(exit, None, &self.start.console_log, &self.start.stderr_log);
                return Err(BootError::Died { reason, console_tail: String::new() });
            }
        };
        let qmp = match qmp {
            Ok(qmp) => qmp,
            Err(error) => return Err(self.explain(error).await),
        };
        Ok(Launched {
            undo: self.undo,
            process: self.process,
            qmp,
            run_dir: self.start.run_dir,
            recorder: self.recorder,
            console_log: self.start.console_log,
            stderr_log: self.start.stderr_log,
        })
    }

    /// A closed control socket means that QEMU is exiting; its exit status says more.
    async fn explain(&self, error: crate::qmp::QmpError) -> BootError {
        let logs = (self.start.console_log.as_path(), self.start.stderr_log.as_path());
        explain(&self.process, error, &self.recorder, logs).await
    }
}

async fn explain(
    process: &Process,
    error: crate::qmp::QmpError,
    recorder: &Recorder,
    (console_log, stderr): (&Path, &Path),
) -> BootError {
    /// A QEMU that has closed its socket is about to exit.
    const EXIT_SOON: Duration = Duration::from_secs(2);
    match (error, tokio::time::timeout(EXIT_SOON, process.wait()).await) {
        (_, Ok(exit)) => {
            recorder.drained().await;
            let reason = ExitReason::of(exit, None, console_log, stderr);
            BootError::Died { reason, console_tail: console_tail(console_log) }
        }
        (error, Err(_elapsed)) => BootError::Qmp(error),
    }
}

impl Launched {
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn qmp(&self) -> &QmpClient {
        &self.qmp
    }

    pub(crate) fn events(&self) -> broadcast::Receiver<Event> {
        self.qmp().events()
    }

    pub(crate) fn agent_socket(&self) -> PathBuf {
        agent_socket(&self.run_dir)
    }

    pub(crate) fn console_tail(&self) -> String {
        console_tail(&self.console_log)
    }

    pub(crate) async fn exit_reason(&self) -> ExitReason {
        let exit = self.process().wait().await;
        self.recorder.drained().await;
        ExitReason::of(exit, None, &self.console_log, &self.stderr_log)
    }

    /// The cause of a failed command: the VM's end, if it is ending.
    pub(crate) async fn explain(&self, error: crate::qmp::QmpError) -> BootError {
        explain(self.process(), error, &self.recorder, (&self.console_log, &self.stderr_log)).await
    }

    /// Hands the VM over; nothing is undone any more.
    pub(crate) fn keep(self) -> (Process, QmpClient, Recorder) {
        self.undo.disarm();
        (self.process, self.qmp, self.recorder)
    }
}

/// The part of the console for an error message.
fn console_tail(console: &Path) -> String {
    console::last_lines(&files::tail(console, console::READ))
}

/// A listening socket that QEMU inherits. Clients can connect from now on; QEMU accepts when it is ready.
fn listen(path: &Path) -> Result<OwnedFd, BootError> {
    let len = path.as_os_str().len();
    if len > MAX_SOCKET_PATH {
        return Err(BootError::SocketPath { path: path.to_owned(), len, max: MAX_SOCKET_PATH });
    }
    let listener = UnixListener::bind(path).map_err(FileError::at("listen on", path))?;
    // The directory admits only its owner; the socket's mode enforces the same again.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(path, mode).map_err(FileError::at("restrict access to", path))?;
    Ok(listener.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlong_socket_path_error_names_run_dir() {
        let error = listen(Path::new(&format!("/tmp/{}", "a".repeat(120)))).unwrap_err();
        assert!(error.to_string().contains("vm.run_dir"), "{error}");
    }

    #[tokio::test]
    async fn dropped_launch_kills_process_and_removes_sockets() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = dir.path().join("run");
        fs::create_dir(&run_dir).unwrap();
        let arguments = vec!["1000".into()];
        let log = dir.path().join("log");
        let process = Launch {
            program: "/bin/sleep".into(),
            arguments,
            log,
            inherited: Vec::new(),
            priority: Priority::Ordinary,
            group: None,
            cell: agentiso_sys::jail::Cell::open(),
        }
        .spawn()
        .unwrap();
        let watched = process.clone();
        drop(Undo { process: Some(process), run_dir: Some(run_dir.clone()) });
        let exit = tokio::time::timeout(Duration::from_secs(10), watched.wait()).await.unwrap();
        assert_eq!(exit, agentiso_sys::process::Exit::Signal(9));
        assert!(!run_dir.exists());
    }
}

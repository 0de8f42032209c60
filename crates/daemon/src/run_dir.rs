//! Allows one daemon per run directory: the sockets and VMs in it belong to the workspaces of one state directory.
//!
//! A daemon locks `<run>/owner` while it runs and writes into it which state file it serves. The file stays, so
//! that after a crash it still says whose VMs run there. A daemon of another state directory is refused while the
//! first one runs, and also while only its VMs do, because it would take them for strays. It may have the directory
//! once they are gone.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use agentiso_core::config::Paths;
use agentiso_host::strays;
use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

/// The file has two short lines; more is not read.
const MAX_OWNER_BYTES: u64 = 8 * 1024;

#[derive(Debug, Error)]
pub enum RunDirError {
    #[error(
        "vm.run_dir {run} is used by another daemon{}; give each configuration a run_dir of its own",
        of(.owner)
    )]
    InUse { run: PathBuf, owner: Option<Owner> },
    #[error(
        "vm.run_dir {run} belongs to {}, and {vms} of its VMs still run there; use that state_file \
         (or stop its VMs with it first), or give this configuration a run_dir of its own",
        .owner.state_file
    )]
    Vms { run: PathBuf, owner: Owner, vms: usize },
    #[error("cannot use {path}: {source}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn of(owner: &Option<Owner>) -> String {
    owner
        .as_ref()
        .map(|owner| format!(" (pid {}, state file {})", owner.pid, owner.state_file))
        .unwrap_or_default()
}

/// Whether two state files, given by their identities, are in one directory. They then share one lock, and another
/// run directory does not help.
pub fn share_directory(one: &str, other: &str) -> bool {
    Path::new(one).parent() == Path::new(other).parent()
}

/// The daemon that wrote the owner file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub pid: u32,
    pub state_file: String,
}

impl Owner {
    /// `None` if the file is not text.
    fn read(file: &File) -> Option<Self> {
        let mut text = String::new();
        file.take(MAX_OWNER_BYTES).read_to_string(&mut text).ok()?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Option<Self> {
        let (pid, state_file) = text.strip_suffix('\n')?.split_once('\n')?;
        Some(Self { pid: pid.parse().ok()?, state_file: state_file.to_owned() })
    }

    /// Whether this owner serves the same directory of workspaces. The state file in it may have been renamed
    /// since.
    fn is_of(&self, state_file: &str) -> bool {
        share_directory(&self.state_file, state_file)
    }
}

/// A lock on the run directory, held until it is dropped.
#[derive(Debug)]
pub(crate) struct RunDirLock {
    _file: File,
}

impl RunDirLock {
    /// Requires that the daemon already holds the lock of its state directory.
    pub(crate) fn acquire(paths: &Paths) -> Result<Self, RunDirError> {
        let run = &paths.run;
        let path = owner_file(run);
        let failed = |source: io::Error| RunDirError::Io { path: path.clone(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(failed)?;
        let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
        let owner = Owner::read(&file);
        match locked {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(RunDirError::InUse { run: run.clone(), owner }),
            Err(error) => return Err(failed(error.into())),
        }
        // A daemon of a version without this file does not lock it, but it listens.
        if UnixStream::connect(paths.daemon_socket()).is_ok() {
            return Err(RunDirError::InUse { run: run.clone(), owner: None });
        }
        let us = Owner { pid: std::process::id(), state_file: identity(&paths.state_file) };
        refuse_others_vms(run, owner, &us.state_file)?;
        file.set_len(0).map_err(failed)?;
        file.rewind().map_err(failed)?;
        write!(file, "{}\n{}\n", us.pid, us.state_file).map_err(failed)?;
        file.sync_data().map_err(failed)?;
        Ok(Self { _file: file })
    }
}

/// The daemon that runs in this run directory.
pub(crate) fn owner_of(run: &Path) -> Option<Owner> {
    let file = File::open(owner_file(run)).ok()?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(rustix::io::Errno::WOULDBLOCK) => Owner::read(&file),
        Ok(()) | Err(_) => None,
    }
}

/// The owner of the VMs in the run directory and their number, if the owner is another state directory. A daemon of
/// this configuration would be refused.
pub fn others_vms(paths: &Paths) -> Option<(Owner, usize)> {
    let owner = Owner::read(&File::open(owner_file(&paths.run)).ok()?);
    match refuse_others_vms(&paths.run, owner, &identity(&paths.state_file)) {
        Err(RunDirError::Vms { owner, vms, .. }) => Some((owner, vms)),
        Ok(()) | Err(RunDirError::InUse { .. } | RunDirError::Io { .. }) => None,
    }
}

fn refuse_others_vms(run: &Path, owner: Option<Owner>, ours: &str) -> Result<(), RunDirError> {
    let Some(owner) = owner.filter(|owner| !owner.is_of(ours)) else { return Ok(()) };
    let vms = strays::find_strays(run, &Default::default())
        .map_err(|error| RunDirError::Io { path: run.to_owned(), source: io::Error::other(error) })?;
    match vms.len() {
        0 => Ok(()),
        vms => Err(RunDirError::Vms { run: run.to_owned(), owner, vms }),
    }
}

fn owner_file(run: &Path) -> PathBuf {
    run.join("owner")
}

/// A name for a state file that is the same by whichever path its directory is reached. The file itself is replaced
/// with every change and need not exist.
pub(crate) fn identity(state_file: &Path) -> String {
    let directory =
        state_file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let path = match state_file.file_name() {
        Some(name) => directory.join(name),
        None => directory,
    };
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    use super::*;

    fn paths(root: &Path, data: &str) -> Paths {
        let run = root.join("run");
        fs::create_dir_all(&run).unwrap();
        paths_in(&run, root, data)
    }

    fn paths_in(run: &Path, root: &Path, data: &str) -> Paths {
        let data = root.join(data);
        fs::create_dir_all(&data).unwrap();
        let text = format!("[server]\nstate_file = {:?}\n[vm]\nrun_dir = {run:?}\n", data.join("state.json"));
        let dirs = agentiso_core::config::UserDirs {
            uid: 1000,
            home: root.into(),
            state_home: None,
            runtime_dir: None,
        };
        agentiso_core::config::Config::parse(&text, &dirs).unwrap().paths
    }

    /// A process that looks like a VM in this run directory, left by a daemon that is gone.
    struct Vm(rustix::process::Pid);

    impl Vm {
        fn start(run: &Path) -> Self {
            // The process prints its own pid, so its command line is complete by then. It stops itself instead of running
            // `sleep`: between fork and exec a child shows the same command line as its parent.
            let waits = "sh -c 'echo $$; exec >/dev/null; kill -STOP $$' x -name \"$1\" -pidfile \"$2\" 2>/dev/null &";
            let id = agentiso_core::ids::WorkspaceId::random();
            let mut command = Command::new("sh");
            command.args(["-c", waits, "x", &format!("agentiso-{id}")]);
            let started = command.arg(run.join(id.short()).join("qemu.pid")).output().unwrap();
            let pid = String::from_utf8_lossy(&started.stdout).trim().parse().unwrap();
            Self(rustix::process::Pid::from_raw(pid).unwrap())
        }
    }

    impl Drop for Vm {
        fn drop(&mut self) {
            use rustix::event::{PollFd, PollFlags, Timespec, poll};
            let process = rustix::process::pidfd_open(self.0, rustix::process::PidfdFlags::empty()).unwrap();
            rustix::process::pidfd_send_signal(&process, rustix::process::Signal::KILL).unwrap();
            // It keeps its command line until it has ended.
            let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
            assert_eq!(poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)), Ok(1));
        }
    }

    #[test]
    fn second_daemon_learns_the_first_state_file() {
        let root = tempfile::tempdir().unwrap();
        let (one, two) = (paths(root.path(), "one"), paths(root.path(), "two"));
        let held = RunDirLock::acquire(&one).unwrap();
        let refused = RunDirLock::acquire(&two).unwrap_err().to_string();
        assert!(refused.contains("one/state.json") && refused.contains("run_dir"), "{refused}");
        assert!(owner_of(&two.run).unwrap().state_file.ends_with("one/state.json"));
        drop(held);
        assert_eq!(owner_of(&two.run), None);
        assert!(RunDirLock::acquire(&two).is_ok(), "nothing of the first is left");
    }

    #[test]
    fn unmarked_listening_daemon_blocks_the_run_directory() {
        let root = tempfile::tempdir().unwrap();
        let one = paths(root.path(), "one");
        let _listens = UnixListener::bind(one.daemon_socket()).unwrap();
        assert!(matches!(RunDirLock::acquire(&one), Err(RunDirError::InUse { owner: None, .. })));
    }

    #[test]
    fn symlinked_state_directory_has_the_same_identity() {
        let root = tempfile::tempdir().unwrap();
        let one = paths(root.path(), "one");
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&one.data, &link).unwrap();
        assert_eq!(identity(&link.join("state.json")), identity(&one.state_file));
        assert_ne!(identity(&link.join("other.json")), identity(&one.state_file));
    }

    #[test]
    fn vms_keep_a_symlinked_run_directory() {
        let root = tempfile::tempdir().unwrap();
        let one = paths(root.path(), "one");
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&one.run, &link).unwrap();
        let two = paths_in(&link, root.path(), "two");
        drop(RunDirLock::acquire(&one).unwrap());
        let vm = Vm::start(&one.run);
        let refused = RunDirLock::acquire(&two).unwrap_err().to_string();
        assert!(refused.contains("one/state.json") && refused.contains("still run"), "{refused}");
        drop(vm);
    }

    #[test]
    fn running_vms_keep_their_run_directory() {
        let root = tempfile::tempdir().unwrap();
        let (one, two) = (paths(root.path(), "one"), paths(root.path(), "two"));
        drop(RunDirLock::acquire(&one).unwrap());
        let vm = Vm::start(&one.run);
        let refused = RunDirLock::acquire(&two).unwrap_err().to_string();
        assert!(refused.contains("one/state.json") && refused.contains("still run"), "{refused}");
        let seen = others_vms(&two).map(|(owner, vms)| (owner.state_file, vms));
        assert_eq!(seen, Some((identity(&one.state_file), 1)));
        assert_eq!(others_vms(&one), None, "they are its own");
        let again = RunDirLock::acquire(&one);
        assert!(again.is_ok(), "its own daemon may come back: {again:?}");
        drop(vm);
        assert_eq!(others_vms(&two), None, "it may have the directory");
    }
}

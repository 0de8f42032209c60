//! The temporary directories of one deep check, and the VMs in them.
//!
//! On drop the VMs are killed and the directories removed. The next check removes what a killed check left behind.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentiso_core::config::Paths;
use agentiso_core::ids::WorkspaceId;
use agentiso_host::strays;
use agentiso_sys::files;
use agentiso_sys::process::Process;
use agentiso_sys::process::VmRecord;
use agentiso_vm::OnSpawn;
use rustix::fs::{FlockOperation, flock};

use super::super::host::MAX_SOCKET_PATH;
use crate::failure::Failure;
use crate::{output, runtime};

const PREFIX: &str = "deep-check-";

/// The end of the longest socket path below a run directory: that of a VM that makes a template.
const LONGEST_SOCKET: &str = "/t-01234567/agent.sock";

/// The time that a killed process gets to end. The kernel has to free its memory first.
const KILL_DEADLINE: Duration = Duration::from_secs(20);

/// Younger directories are kept: a check may have made them and not locked them yet.
const STALE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Scratch {
    data: PathBuf,
    run: PathBuf,
    vms: Arc<Mutex<Vec<VmRecord>>>,
    /// Tells other checks that the directory is in use, for as long as this process lives.
    _lock: File,
}

impl Scratch {
    /// Makes the directories below `parent`, or by default below the data directory, whose file system workspaces use.
    pub(super) fn make(paths: &Paths, parent: Option<&Path>, needed: u64) -> Result<Self, Failure> {
        let parent = match parent {
            Some(parent) => std::path::absolute(parent)?,
            None => {
                files::make_private_dir(&paths.data)?;
                paths.data.clone()
            }
        };
        require_space(&parent, needed)?;
        remove_stale(&parent, &paths.run);
        let id = WorkspaceId::random().short();
        let data = parent.join(format!("{PREFIX}{id}"));
        std::fs::create_dir(&data)
            .map_err(|error| Failure::new(format!("cannot create {}: {error}", data.display())))?;
        files::make_private_dir(&data)?;
        let lock = File::open(&data)?;
        let scratch = Self { run: run_dir(&paths.run, &id), data, vms: Arc::default(), _lock: lock };
        flock(&scratch._lock, FlockOperation::NonBlockingLockExclusive)?;
        files::make_private_dir(&scratch.run)?;
        Ok(scratch)
    }

    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    pub(super) fn run(&self) -> &Path {
        &self.run
    }

    /// Records every VM that is started, so that drop can end it.
    pub(super) fn on_spawn(&self) -> OnSpawn {
        let vms = Arc::clone(&self.vms);
        OnSpawn::new(move |record| {
            vms.lock().unwrap_or_else(PoisonError::into_inner).push(record);
            Box::pin(std::future::ready(Ok(())))
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let vms = std::mem::take(&mut *self.vms.lock().unwrap_or_else(PoisonError::into_inner));
        if let Ok(runtime) = runtime::runtime() {
            runtime.block_on(kill_all(&vms));
        }
        for dir in [&self.run, &self.data] {
            if let Err(error) = files::remove_dir(dir) {
                eprintln!("note: {error}");
            }
        }
    }
}

async fn kill_all(vms: &[VmRecord]) {
    for record in vms {
        // A process that cannot be found has ended.
        if let Ok(Some(process)) = Process::find(record) {
            process.kill();
            if tokio::time::timeout(KILL_DEADLINE, process.wait()).await.is_err() {
                eprintln!("note: process {} was killed but is still there", record.pid);
            }
        }
    }
}

fn require_space(dir: &Path, needed: u64) -> Result<(), Failure> {
    let space = files::space(dir)
        .map_err(|error| Failure::new(format!("cannot use {}: {}", dir.display(), error.source)))?;
    let free = space.free_bytes;
    if free >= needed {
        return Ok(());
    }
    let (free, needed) = (output::size(free), output::size(needed));
    Err(Failure::new(format!("{} has {free} free; a deep check needs {needed}", dir.display()))
        .hint("choose another directory with --dir"))
}

/// The directory of the sockets: beside the daemon's sockets, or below /tmp if that path is too long for sockets.
fn run_dir(configured: &Path, id: &str) -> PathBuf {
    let wanted = configured.join(format!("deep-{id}"));
    if wanted.as_os_str().as_bytes().len() + LONGEST_SOCKET.len() <= MAX_SOCKET_PATH {
        return wanted;
    }
    PathBuf::from(format!("/tmp/agentiso-deep-{id}"))
}

/// Removes the VMs, sockets and files of checks that were killed.
fn remove_stale(parent: &Path, run: &Path) {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    for data in entries.map(|entry| entry.path()) {
        let name = data.file_name().and_then(|name| name.to_str());
        let Some(id) = name.and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        let age = data.metadata().and_then(|meta| meta.modified()).ok().and_then(|time| time.elapsed().ok());
        let Ok(lock) = File::open(&data) else { continue };
        if age < Some(STALE) || flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        let run = run_dir(run, id);
        let vms = strays::find_strays(&run, &HashSet::new()).unwrap_or_default();
        let records: Vec<_> = vms.into_iter().map(|stray| stray.record).collect();
        if let Ok(runtime) = runtime::runtime() {
            runtime.block_on(kill_all(&records));
        }
        for dir in [&run, &data] {
            if let Err(error) = files::remove_dir(dir) {
                eprintln!("note: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use agentiso_core::config::{Config, UserDirs};

    use super::*;

    fn paths(dir: &Path) -> Paths {
        let dirs = UserDirs { uid: 1000, home: dir.to_owned(), state_home: None, runtime_dir: None };
        Config::parse("", &dirs).unwrap().paths
    }

    #[test]
    fn scratch_directories_are_removed_on_drop() {
        let home = tempfile::tempdir().unwrap();
        let paths = paths(home.path());
        let scratch = Scratch::make(&paths, None, 0).unwrap();
        let (data, run) = (scratch.data().to_owned(), scratch.run().to_owned());
        assert!(data.starts_with(&paths.data) && data.is_dir() && run.is_dir());
        std::fs::write(data.join("ram"), "x").unwrap();
        drop(scratch);
        assert!(!data.exists() && !run.exists());
    }

    #[test]
    fn stale_scratch_is_removed_but_used_stays() {
        let home = tempfile::tempdir().unwrap();
        let paths = paths(home.path());
        let other = tempfile::tempdir().unwrap();
        let stale = other.path().join("deep-check-00000000");
        std::fs::create_dir(&stale).unwrap();
        File::open(&stale).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        std::fs::create_dir(other.path().join("precious")).unwrap();
        let first = Scratch::make(&paths, Some(other.path()), 0).unwrap();
        assert!(!stale.exists() && other.path().join("precious").exists());
        File::open(first.data()).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let second = Scratch::make(&paths, Some(other.path()), 0).unwrap();
        assert!(first.data().exists() && second.data().exists());
    }

    #[test]
    fn scratch_is_refused_without_disk_space() {
        let home = tempfile::tempdir().unwrap();
        let refused = Scratch::make(&paths(home.path()), None, u64::MAX).unwrap_err();
        assert!(refused.to_string().contains("needs"), "{refused}");
    }

    #[test]
    fn run_directory_moves_when_path_is_long() {
        assert_eq!(run_dir(Path::new("/run/agentiso"), "0a"), Path::new("/run/agentiso/deep-0a"));
        let deep = PathBuf::from(format!("/{}", "x".repeat(80)));
        assert_eq!(run_dir(&deep, "0a"), Path::new("/tmp/agentiso-deep-0a"));
    }
}

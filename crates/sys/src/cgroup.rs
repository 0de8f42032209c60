//! Control groups (cgroup v2). Each VM has one with limits for memory, threads and processor time and an equal share
//! of the disks, so that a QEMU that leaks, or that its guest has taken over, cannot exhaust the host. Each run of
//! `qemu-img`, which reads untrusted files, has one too.
//!
//! ```text
//! the daemon's own cgroup, which it does not share:
//!   ├─ agentiso-daemon              the daemon, because a cgroup with limited children has no processes itself
//!   ├─ agentiso-machine-MARK-NAME   one QEMU; memory.max, pids.max, cpu.max, io.weight
//!   └─ agentiso-machine-MARK-helper-NAME   one run of qemu-img; the same limits
//! ```
//!
//! Only the daemon itself is ever moved, and only if it is alone in its cgroup. Otherwise there are no groups, and
//! [`CgroupError`] has the reason. The mark is a hash of the daemon's run directory, so that two daemons in one cgroup
//! leave each other's groups alone.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::files::FileError;
use crate::hex;
use crate::jail::HELPER_DATA;

/// The controllers that a VM's group must have.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// The controllers that it uses if the host provides them; a service manager often does not.
const MORE_CONTROLLERS: [&str; 2] = ["cpu", "io"];

const DAEMON: &str = "agentiso-daemon";
const VM: &str = "agentiso-machine-";

/// Part of the name of a helper's group, in place of a run directory's name, which never begins like this.
const HELPER: &str = "helper-";

const PROCESSES: &str = "cgroup.procs";
const CONTROL: &str = "cgroup.subtree_control";

/// The memory of QEMU besides the guest's, in MiB: 128 for translated code under emulation, and the rest for disk
/// layers, packets, threads and its own code, with room to spare. The limit is meant for a QEMU that misbehaves.
const OVERHEAD_MB: u64 = 512;

/// The processors that QEMU may use besides its guest's: for disks, packets and snapshots.
const MORE_PROCESSORS: u64 = 1;

/// The kernel's default period of `cpu.max`, in microseconds.
const CPU_PERIOD: u64 = 100_000;

/// Every VM has the same share of a contended disk.
const IO_WEIGHT: u64 = 100;

/// A helper has half the share of a VM, because exports and imports take long anyway and guests wait for every write.
const HELPER_IO_WEIGHT: u64 = 50;

/// A helper has a single thread of work.
const HELPER_PROCESSORS: u64 = 1;

/// The threads of QEMU besides its processors: up to 64 for disk I/O, and a few for each of its other tasks.
const THREADS: u64 = 128;

/// A killed helper is gone as soon as the kernel has freed its memory, which is little.
const KILL_DEADLINE: Duration = Duration::from_secs(5);

#[derive(Debug, Error)]
pub enum CgroupError {
    #[error("this host has no cgroup v2 hierarchy")]
    NoHierarchy,
    #[error("the cgroup {} has no controller for {}", dir.display(), missing.join(" and "))]
    NoController { dir: PathBuf, missing: Vec<&'static str> },
    #[error("the cgroup {} was not delegated to this user: {source}", dir.display())]
    NotDelegated { dir: PathBuf, source: io::Error },
    #[error("the cgroup {} contains processes that do not belong to agentiso", dir.display())]
    Shared { dir: PathBuf },
    #[error(transparent)]
    File(#[from] FileError),
}

impl CgroupError {
    /// The advice for the user.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::NoHierarchy | Self::NoController { .. } => {
                "use a host with the memory and pids controllers in cgroup v2 (kernel parameter systemd.unified_cgroup_hierarchy=1)"
            }
            Self::NotDelegated { .. } | Self::Shared { .. } | Self::File(_) => {
                "run the daemon in a cgroup of its own: systemd-run --user -p Delegate=yes agentiso daemon (root: without \
                 --user)"
            }
        }
    }
}

/// A cgroup in which groups for VMs can be made, and the step that this takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    dir: PathBuf,
    step: Step,
    /// The controllers that child groups can have.
    offered: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The child groups already have the controllers.
    Nothing,
    Enable,
    /// The daemon is the only process and has to move into a child group before child groups get controllers.
    MoveAndEnable,
}

impl Place {
    /// Finds out whether a process can have groups for VMs in its cgroup. Changes nothing.
    pub fn find(pid: u32) -> Result<Self, CgroupError> {
        Self::look(&dir_of(pid)?, pid)
    }

    /// Finds it out for a process in the cgroup `dir`.
    pub fn look(dir: &Path, pid: u32) -> Result<Self, CgroupError> {
        let is_leaf = dir.file_name().is_some_and(|name| name == DAEMON);
        let dir = dir.parent().filter(|_| is_leaf).unwrap_or(dir);
        let read = |name: &str| {
            let path = dir.join(name);
            fs::read_to_string(&path).map_err(FileError::at("read", &path))
        };
        let facts = Facts {
            offered: read("cgroup.controllers")?,
            enabled: read(CONTROL)?,
            processes: read(PROCESSES)?,
            // The kernel's root cgroup has no type, and may have both processes and limited child groups.
            is_root: !dir.join("cgroup.type").exists(),
        };
        let step = decide(dir, &facts, pid)?;
        for path in [dir.to_owned(), dir.join(PROCESSES), dir.join(CONTROL)] {
            rustix::fs::access(&path, rustix::fs::Access::WRITE_OK)
                .map_err(|error| CgroupError::NotDelegated { dir: dir.to_owned(), source: error.into() })?;
        }
        Ok(Self { dir: dir.to_owned(), step, offered: facts.offered })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

#[derive(Debug)]
struct Facts {
    offered: String,
    enabled: String,
    processes: String,
    is_root: bool,
}

fn decide(dir: &Path, facts: &Facts, pid: u32) -> Result<Step, CgroupError> {
    let has = |words: &str, wanted: &str| words.split_whitespace().any(|word| word == wanted);
    let missing = |words: &str| -> Vec<&'static str> {
        CONTROLLERS.into_iter().filter(|wanted| !has(words, wanted)).collect()
    };
    let not_offered = missing(&facts.offered);
    if !not_offered.is_empty() {
        return Err(CgroupError::NoController { dir: dir.to_owned(), missing: not_offered });
    }
    if missing(&facts.enabled).is_empty() {
        let withheld = |wanted: &&str| has(&facts.offered, wanted) && !has(&facts.enabled, wanted);
        let more = MORE_CONTROLLERS.iter().any(withheld);
        return Ok(if more { Step::Enable } else { Step::Nothing });
    }
    let mut others = facts.processes.lines().filter(|line| line.parse() != Ok(pid));
    match (facts.is_root || facts.processes.trim().is_empty(), others.next()) {
        (true, _) => Ok(Step::Enable),
        (false, None) => Ok(Step::MoveAndEnable),
        (false, Some(_)) => Err(CgroupError::Shared { dir: dir.to_owned() }),
    }
}

/// The cgroups of one daemon's VMs.
#[derive(Clone, Debug)]
pub struct Cgroups {
    dir: PathBuf,
    /// The prefix of our groups' names.
    prefix: String,
}

impl Cgroups {
    /// Prepares this process's cgroup for child groups, which may move the process, and removes the groups that
    /// earlier daemons with this run directory left.
    pub fn set_up(run_root: &Path) -> Result<Self, CgroupError> {
        let place = Place::find(std::process::id())?;
        let groups = Self::at(&place, run_root)?;
        groups.remove_leftovers();
        Ok(groups)
    }

    /// Prepares this place for child groups.
    pub fn at(place: &Place, run_root: &Path) -> Result<Self, CgroupError> {
        let dir = &place.dir;
        if place.step == Step::MoveAndEnable {
            let leaf = dir.join(DAEMON);
            make(&leaf)?;
            write(&leaf.join(PROCESSES), &std::process::id().to_string())?;
        }
        if place.step != Step::Nothing {
            enable(&dir.join(CONTROL), &place.offered)?;
        }
        let mark = hex(&Sha256::digest(run_root.as_os_str().as_bytes())[..4]);
        Ok(Self { dir: dir.clone(), prefix: format!("{VM}{mark}-") })
    }

    /// Makes the group of the VM with that run directory, processors and memory.
    pub fn group(&self, run_dir: &Path, vcpus: u32, memory_mb: u32) -> Result<Group, FileError> {
        let name = run_dir.file_name().unwrap_or_default().to_string_lossy();
        let group = Group::make(&self.dir.join(format!("{}{name}", self.prefix)))?;
        group.limit(&Limits::of(vcpus, memory_mb))?;
        Ok(group)
    }

    /// Makes a group for one run of a helper program.
    pub fn helper(&self) -> Result<Group, FileError> {
        let name = uuid::Uuid::new_v4().simple();
        let group = Group::make(&self.dir.join(format!("{}{HELPER}{name}", self.prefix)))?;
        group.limit(&Limits::of_helper())?;
        Ok(group)
    }

    /// Removes the groups of earlier daemons. Groups with a running VM stay, because the kernel refuses to remove
    /// them. A helper that still runs is killed, because nothing waits for its result.
    fn remove_leftovers(&self) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(own) = name.to_str().and_then(|name| name.strip_prefix(&self.prefix)) else { continue };
            if own.starts_with(HELPER) {
                end_processes(&entry.path());
            }
            remove(&entry.path());
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    memory_bytes: u64,
    threads: u64,
    processors: u64,
    io_weight: u64,
}

impl Limits {
    /// Twice the guest's memory: once for its own pages, and once for a copy, because QEMU writes the memory of a
    /// snapshot and is charged for it until it is on disk. Pages of a template's file that are only read are cache,
    /// which the kernel can reclaim.
    fn of(vcpus: u32, memory_mb: u32) -> Self {
        Self {
            memory_bytes: (u64::from(memory_mb) * 2 + OVERHEAD_MB) << 20,
            threads: u64::from(vcpus) + THREADS,
            processors: u64::from(vcpus) + MORE_PROCESSORS,
            io_weight: IO_WEIGHT,
        }
    }

    /// The memory that its jail allows, with room for its code and for the data it reads and writes, which is cache
    /// that the kernel can reclaim.
    fn of_helper() -> Self {
        Self {
            memory_bytes: HELPER_DATA + (OVERHEAD_MB << 20),
            threads: THREADS,
            processors: HELPER_PROCESSORS + MORE_PROCESSORS,
            io_weight: HELPER_IO_WEIGHT,
        }
    }
}

/// A cgroup for a process that is about to start. Dropping it removes the cgroup unless a process is in it; after
/// that, it is removed with the process, see [`Home`].
#[derive(Debug)]
pub struct Group {
    dir: PathBuf,
    processes: File,
}

impl Group {
    fn make(dir: &Path) -> Result<Self, FileError> {
        make(dir)?;
        let path = dir.join(PROCESSES);
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        match opened {
            Ok(processes) => Ok(Self { dir: dir.to_owned(), processes }),
            Err(error) => {
                remove(dir);
                Err(FileError::at("open", &path)(error))
            }
        }
    }

    fn limit(&self, limits: &Limits) -> Result<(), FileError> {
        write(&self.dir.join("memory.max"), &limits.memory_bytes.to_string())?;
        write(&self.dir.join("pids.max"), &limits.threads.to_string())?;
        self.limit_further("cpu.max", &format!("{} {CPU_PERIOD}", limits.processors * CPU_PERIOD))?;
        self.limit_further("io.weight", &format!("default {}", limits.io_weight))
    }

    /// Sets a limit if the group has its controller.
    fn limit_further(&self, name: &str, limit: &str) -> Result<(), FileError> {
        let path = self.dir.join(name);
        if path.exists() { write(&path, limit) } else { Ok(()) }
    }

    /// The descriptor through which a process enters by writing [`Group::ITSELF`].
    pub(crate) fn door(&self) -> RawFd {
        self.processes.as_raw_fd()
    }

    /// The kernel's notation for the process that writes it.
    pub(crate) const ITSELF: &[u8] = b"0";
}

impl Drop for Group {
    fn drop(&mut self) {
        remove(&self.dir);
    }
}

/// The cgroup of a running process of ours.
#[derive(Debug)]
pub(crate) struct Home(PathBuf);

impl Home {
    /// `None` if the process is in no cgroup for a VM or helper.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let dir = dir_of(pid).ok()?;
        dir.file_name()?.to_str()?.starts_with(VM).then_some(Self(dir))
    }

    /// Removes the cgroup. The process must have ended.
    pub(crate) fn remove(&self) {
        remove(&self.0);
    }
}

/// The directory of a process's cgroup.
fn dir_of(pid: u32) -> Result<PathBuf, CgroupError> {
    let read = |path: String| {
        fs::read_to_string(&path).map_err(|error| FileError::at("read", Path::new(&path))(error))
    };
    let (mounts, cgroups) = (read("/proc/self/mountinfo".to_owned())?, read(format!("/proc/{pid}/cgroup"))?);
    locate(&mounts, &cgroups).ok_or(CgroupError::NoHierarchy)
}

/// Finds it in the texts of `/proc/PID/mountinfo` and `/proc/PID/cgroup`.
fn locate(mounts: &str, cgroups: &str) -> Option<PathBuf> {
    let own = Path::new(cgroups.lines().find_map(|line| line.strip_prefix("0::"))?);
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        // A group outside of the mounted root, `/../x`, has no directory here.
        let below = own.strip_prefix(root).ok().filter(|path| !path.starts_with(".."))?;
        kind.starts_with("cgroup2 ").then(|| Path::new(point).join(below))
    })
}

/// Enables all offered controllers for child groups, or at least the required ones.
fn enable(control: &Path, offered: &str) -> Result<(), FileError> {
    let is_offered = |wanted: &&str| offered.split_whitespace().any(|word| word == *wanted);
    let words = |names: &[&str]| names.iter().map(|name| format!("+{name}")).collect::<Vec<_>>().join(" ");
    let all: Vec<_> =
        CONTROLLERS.into_iter().chain(MORE_CONTROLLERS.into_iter().filter(is_offered)).collect();
    write(control, &words(&all)).or_else(|_refused| write(control, &words(&CONTROLLERS)))
}

fn make(dir: &Path) -> Result<(), FileError> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(FileError::at("create the cgroup", dir)(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> Result<(), FileError> {
    fs::write(path, text).map_err(FileError::at("write", path))
}

/// Removes a cgroup. One with processes is in use and stays.
fn remove(dir: &Path) {
    match fs::remove_dir(dir) {
        Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ResourceBusy) => {
            tracing::debug!(cgroup = %dir.display(), %error, "the cgroup was not removed");
        }
        Ok(()) | Err(_) => {}
    }
}

/// Kills the processes in a group and waits until they are gone.
fn end_processes(dir: &Path) {
    let listed = fs::read_to_string(dir.join(PROCESSES)).unwrap_or_default();
    let pids = listed.lines().filter_map(|line| line.parse().ok().and_then(Pid::from_raw));
    let opened = pids.filter_map(|pid| {
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // The cgroup is read after the pidfd was opened, so that a process that reused the pid is not killed.
        let found = dir_of(pid.as_raw_nonzero().get().unsigned_abs()).ok()?;
        (found == dir).then_some(pidfd)
    });
    let ending: Vec<_> = opened.collect();
    for pidfd in &ending {
        // This fails if the process has already ended.
        let _ = pidfd_send_signal(pidfd, Signal::KILL);
    }
    let deadline = Instant::now() + KILL_DEADLINE;
    for pidfd in &ending {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut fds = [rustix::event::PollFd::new(pidfd, rustix::event::PollFlags::IN)];
        // A process that is still there keeps its group from being removed.
        let _ = rustix::event::poll(&mut fds, rustix::time::Timespec::try_from(left).ok().as_ref());
    }
}

#[cfg(test)]
#[path = "cgroup_tests.rs"]
mod tests;

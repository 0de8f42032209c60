//! The end of the machine: processes ended, disk clean, power off.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use agentiso_protocol::schema::v1;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, mount_remount};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::system::{RebootCommand, reboot};

use super::error::{MachineError, Step as _};
use crate::console;

/// How long killed processes may take to go.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// Processes watched at once; more than a descriptor table holds are not waited for one by one.
const MAX_WATCHED: usize = 512;

/// Ends every process but init and this one, and leaves the disk clean.
pub(super) fn quiesce(grace: Duration) -> Result<v1::ShutdownResponse, MachineError> {
    // Written back in parallel with what processes still do; the rest is little then.
    rustix::fs::sync();
    signal_all(libc::SIGTERM).step("ending processes")?;
    let stubborn = wait_all(grace).step("waiting for processes")?;
    if stubborn > 0 {
        signal_all(libc::SIGKILL).step("killing processes")?;
        let left = wait_all(KILL_GRACE).step("waiting for killed processes")?;
        if left > 0 {
            console::log(format_args!("{left} processes do not die"));
        }
    }
    rustix::fs::sync();
    // A disk that cannot be made read-only has been written back nevertheless, and its journal does the rest.
    if let Err(error) = mount_remount("/", MountFlags::RDONLY, "") {
        console::log(format_args!("the root file system stays writable: {error}"));
    }
    rustix::fs::sync();
    Ok(v1::ShutdownResponse { killed: u32::try_from(stubborn).unwrap_or(u32::MAX) })
}

/// Turns the machine off, in whatever way it can.
pub(super) fn power_off() {
    console::log(format_args!("power off"));
    for command in [RebootCommand::PowerOff, RebootCommand::Restart] {
        if let Err(error) = reboot(command) {
            console::log(format_args!("{command:?} failed: {error}"));
        }
    }
}

fn signal_all(signal: i32) -> io::Result<()> {
    // SAFETY: passes two integers. -1 means every process but init and this one.
    let result = unsafe { libc::kill(-1, signal) };
    let error = io::Error::last_os_error();
    if result < 0 && error.raw_os_error() != Some(libc::ESRCH) { Err(error) } else { Ok(()) }
}

/// Waits until no other process is left; returns how many are when time is up.
fn wait_all(limit: Duration) -> io::Result<usize> {
    let deadline = Instant::now() + limit;
    loop {
        let others = others()?;
        if others.is_empty() {
            return Ok(0);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(others.len());
        }
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let mut watched: Vec<_> = others.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        match poll(&mut watched, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Processes that run, apart from init and this one. A kernel thread has no program; a zombie has ended.
fn others() -> io::Result<Vec<OwnedFd>> {
    let own = std::process::id();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        if number == 1
            || number.unsigned_abs() == own
            || fs::read_link(format!("/proc/{number}/exe")).is_err()
        {
            continue;
        }
        // One that ends meanwhile is one less.
        if let Some(pid) = Pid::from_raw(number)
            && let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty())
        {
            found.push(pidfd);
            if found.len() == MAX_WATCHED {
                break;
            }
        }
    }
    Ok(found)
}

//! Shuts the VM down: ends processes, leaves the disk clean, powers off.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use agentiso_protocol::schema::v1;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, mount_remount};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::system::{RebootCommand, reboot};

use super::error::{Step as _, SystemError};
use crate::console;

/// The time that killed processes get to end.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// The most processes to watch at once, so that the descriptor table is not exhausted.
const MAX_WATCHED: usize = 512;

/// Ends every process but init and this one, and leaves the disk clean.
pub(super) fn quiesce(grace: Duration) -> Result<v1::ShutdownResponse, SystemError> {
    // Most data is written back while processes still run, so that little is left for later.
    rustix::fs::sync();
    signal_all(libc::SIGTERM).step("ending processes")?;
    let stubborn = wait_all(grace).step("waiting for processes")?;
    if stubborn > 0 {
        signal_all(libc::SIGKILL).step("killing processes")?;
        let left = wait_all(KILL_GRACE).step("waiting for killed processes")?;
        if left > 0 {
            console::log(format_args!("{left} processes are still running after SIGKILL"));
        }
    }
    rustix::fs::sync();
    // A disk that cannot be made read-only was written back nevertheless, and its journal covers the rest.
    if let Err(error) = mount_remount("/", MountFlags::RDONLY, "") {
        console::log(format_args!("cannot remount the root file system read-only: {error}"));
    }
    rustix::fs::sync();
    Ok(v1::ShutdownResponse { killed: u32::try_from(stubborn).unwrap_or(u32::MAX) })
}

/// Powers the VM off; if that fails, restarts it.
pub(super) fn power_off() {
    console::log(format_args!("powering off"));
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

/// Waits until no other process is left. Returns the number of remaining ones when the time is up.
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

/// All running processes except init and this one. Kernel threads and zombies are left out: they have no program.
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
        // A process that has ended meanwhile is left out.
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

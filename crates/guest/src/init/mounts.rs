//! Mounts the first file systems of a guest and opens its console.

use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;

use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountFlags, mount};

/// Shared memory is a file system in memory. A limit of a quarter leaves memory for programs.
const SHARED_MEMORY_OPTIONS: &std::ffi::CStr = c"mode=1777,size=25%";

/// Terminals belong to the group `tty`, which is 5 in Debian and its derivatives.
const TERMINAL_OPTIONS: &std::ffi::CStr = c"mode=0620,ptmxmode=0666,gid=5";

/// Links that shells expect and that only udev would make.
const LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
];

/// Mounts the file systems that every program needs.
pub(super) fn mount_all() -> io::Result<()> {
    let plain = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount_at("proc", "/proc", plain, None)?;
    mount_at("sysfs", "/sys", plain, None)?;
    mount_at("devtmpfs", "/dev", MountFlags::NOSUID, None)?;
    mount_at("devpts", "/dev/pts", MountFlags::NOSUID | MountFlags::NOEXEC, Some(TERMINAL_OPTIONS))?;
    mount_at("tmpfs", "/dev/shm", MountFlags::NOSUID | MountFlags::NODEV, Some(SHARED_MEMORY_OPTIONS))?;
    for (target, link) in LINKS {
        symlink(target, link)?;
    }
    Ok(())
}

fn mount_at(kind: &str, path: &str, flags: MountFlags, options: Option<&std::ffi::CStr>) -> io::Result<()> {
    fs::create_dir_all(path)?;
    match mount(kind, path, kind, flags, options) {
        // The kernel may have mounted it already.
        Ok(()) | Err(rustix::io::Errno::BUSY) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Connects standard input, output and error to the console. Without a device file in the initramfs the kernel
/// starts init with none of them open.
pub(super) fn open_console() -> io::Result<()> {
    let console = open("/dev/console", OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    let number = console.as_raw_fd();
    for standard in 0..=2 {
        // SAFETY: replaces a standard descriptor, which nothing in this process owns, by one that is open.
        if unsafe { libc::dup2(number, standard) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    if number <= 2 {
        // The console's descriptor is one of the three and must stay open, also in programs that are executed from
        // here.
        rustix::io::fcntl_setfd(&console, rustix::io::FdFlags::empty())?;
        std::mem::forget(console);
    }
    Ok(())
}

//! The jail of an ordinary user on a host without user namespaces: files are not hidden, but the kernel refuses access.
//!
//! Landlock refuses to open files that the [`Cell`] does not show, and to trace processes outside the jail. It does not
//! cover named Unix sockets, the mode and times of files, and in older versions signals. The system call filter refuses
//! all of these, see [`super::filter`]; the program inherits the descriptors that it needs instead. It can see the
//! names, sizes and times of files that it cannot open.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr;

use super::cell::{Cell, View};
use super::enter::check;
use super::failure::{Failed, Step};

/// The version of Landlock that came with Linux 6.7, the first that covers ports.
const VERSION: libc::c_long = 4;

// From <linux/landlock.h>.
const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;
const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_REG: u64 = 1 << 8;
const TRUNCATE: u64 = 1 << 14;

/// All file operations that Landlock covers since Linux 6.7.
const ALL_OF_FILES: u64 = (1 << 15) - 1;
/// Device-specific requests, since 6.10.
const IOCTL_DEV: u64 = 1 << 15;
const IOCTL_DEV_VERSION: libc::c_long = 5;
/// Listening and connecting.
const ALL_OF_PORTS: u64 = 0b11;
/// Abstract sockets and signals, since 6.12.
const ALL_OF_SCOPES: u64 = 0b11;
const SCOPES_VERSION: libc::c_long = 6;

/// Operations on anything that is not a directory.
const OF_PLAIN_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE;

#[repr(C)]
struct Ruleset {
    files: u64,
    ports: u64,
    scopes: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

/// The Landlock rules of one program, applied by its child.
#[derive(Debug)]
pub(super) struct Rules {
    ruleset: OwnedFd,
}

impl Rules {
    pub(super) fn new(cell: &Cell) -> io::Result<Self> {
        let ruleset = make_ruleset()?;
        for (path, view) in &cell.views {
            let allowed = match view {
                View::Program => EXECUTE | READ_FILE | READ_DIR,
                View::ReadOnly => READ_FILE | READ_DIR,
                View::Writable => READ_FILE | WRITE_FILE | TRUNCATE,
                View::Device => READ_FILE | WRITE_FILE,
            };
            allow(&ruleset, path, allowed)?;
        }
        for path in cell.scratch.iter().filter(|path| path.is_dir()) {
            allow(&ruleset, path, READ_FILE | WRITE_FILE | TRUNCATE | MAKE_REG | REMOVE_FILE)?;
        }
        Ok(Self { ruleset })
    }

    /// Runs in the child, after it has set no_new_privs.
    pub(super) fn apply(&self) -> Result<(), Failed> {
        let (rules, flags) = (self.ruleset.as_raw_fd(), 0);
        // SAFETY: the descriptor is a set of rules.
        check(Step::Rules, unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules, flags) }).map(drop)
    }
}

fn make_ruleset() -> io::Result<OwnedFd> {
    let none = ptr::null::<Ruleset>();
    // SAFETY: with this flag the kernel takes no rules and tells its version.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0, CREATE_RULESET_VERSION) };
    if version < VERSION {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel has no Landlock, or one from before Linux 6.7",
        ));
    }
    let since = |first: libc::c_long, rights: u64| if version >= first { rights } else { 0 };
    let rules = Ruleset {
        files: ALL_OF_FILES | since(IOCTL_DEV_VERSION, IOCTL_DEV),
        ports: ALL_OF_PORTS,
        scopes: since(SCOPES_VERSION, ALL_OF_SCOPES),
    };
    // SAFETY: the rules are of the size that is said; the result is a descriptor of ours.
    unsafe {
        let pointer = ptr::from_ref(&rules);
        let fd = libc::syscall(libc::SYS_landlock_create_ruleset, pointer, size_of::<Ruleset>(), 0);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd as i32)) }
    }
}

fn allow(ruleset: &OwnedFd, path: &Path, allowed: u64) -> io::Result<()> {
    let place: File =
        OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path)?;
    let allowed = if place.metadata()?.is_dir() { allowed } else { allowed & OF_PLAIN_FILES };
    let rule = PathBeneath { allowed, parent: place.as_raw_fd() };
    // SAFETY: the rule is what its kind says, and both descriptors are open.
    let added = unsafe {
        let pointer = ptr::from_ref(&rule);
        libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), RULE_PATH_BENEATH, pointer, 0)
    };
    if added < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

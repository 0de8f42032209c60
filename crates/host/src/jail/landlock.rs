//! The jail of an ordinary user on a host without user namespaces: nothing is hidden, but the kernel refuses it.
//!
//! Landlock refuses every file that the [`Cell`] does not show, and to trace whoever has no such rules. It knows nothing of
//! Unix sockets with a name, and older versions nothing of signals. So a filter refuses the system calls for sockets,
//! signals to others, and what else reaches beyond the process. What the program needs of these it is given open.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr;

use super::cell::{Cell, View};
use super::enter::check;
use super::failure::{Failed, Step};

/// The version of Landlock that came with Linux 6.7: from here on it knows of ports.
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

/// Everything that can be done to files since Linux 6.7.
const ALL_OF_FILES: u64 = (1 << 15) - 1;
/// Device-specific requests, since 6.10.
const IOCTL_DEV: u64 = 1 << 15;
const IOCTL_DEV_VERSION: libc::c_long = 5;
/// To listen and connect.
const ALL_OF_PORTS: u64 = 0b11;
/// Abstract sockets and signals, since 6.12.
const ALL_OF_SCOPES: u64 = 0b11;
const SCOPES_VERSION: libc::c_long = 6;

/// What can be done to something that is no directory.
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

/// The rules and the filter of one program, to be taken on by its child.
#[derive(Debug)]
pub(super) struct Rules {
    ruleset: OwnedFd,
    filter: Vec<libc::sock_filter>,
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
        Ok(Self { ruleset, filter: filter() })
    }

    /// Runs in the child, which has given up its right to gain privileges.
    pub(super) fn apply(&mut self) -> Result<(), Failed> {
        // SAFETY: takes no pointers.
        let own = unsafe { libc::getpid() };
        if let Some(instruction) = self.filter.get_mut(OWN_PID) {
            instruction.k = own as u32;
        }
        let program =
            libc::sock_fprog { len: self.filter.len() as libc::c_ushort, filter: self.filter.as_mut_ptr() };
        // SAFETY: the descriptor is a set of rules, and the filter is as long as it is said to be.
        unsafe {
            check(Step::Rules, libc::syscall(libc::SYS_landlock_restrict_self, self.ruleset.as_raw_fd(), 0))?;
            let (mode, program) = (libc::SECCOMP_SET_MODE_FILTER, ptr::from_ref(&program));
            check(Step::Filter, libc::syscall(libc::SYS_seccomp, mode, 0, program))?;
        }
        Ok(())
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

/// What reaches beyond the process and is not about files. `io_uring` could make any of the others.
const REFUSED: [libc::c_long; 27] = [
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pidfd_getfd,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_semget,
    libc::SYS_msgget,
    libc::SYS_mq_open,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
];

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Numbers from here on are of another way to call the kernel, with 32 bits.
const OTHER_NUMBERS: u32 = 0x4000_0000;

// Where `struct seccomp_data` has the number, the architecture and the lower half of the first argument.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const FIRST_ARGUMENT_AT: u32 = 16;

/// The instruction that compares with the child's own process id, which only the child knows.
const OWN_PID: usize = 6;

/// In the order of the instructions: a jump skips as many as it says.
fn filter() -> Vec<libc::sock_filter> {
    let instruction = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |at: u32| instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
    let equal =
        |value: u32, jt: u8, jf: u8| instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, value);
    let end = |action: u32| instruction(libc::BPF_RET | libc::BPF_K, 0, 0, action);
    let refuse = || end(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
    let mut filter = vec![
        load(ARCHITECTURE_AT),
        equal(ARCHITECTURE, 1, 0),
        end(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER_AT),
        // A signal to one of its own threads.
        equal(libc::SYS_tgkill as u32, 0, 4),
        load(FIRST_ARGUMENT_AT),
        equal(0, 0, 1),
        end(libc::SECCOMP_RET_ALLOW),
        refuse(),
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, OTHER_NUMBERS),
        refuse(),
    ];
    for number in REFUSED {
        filter.extend([equal(number as u32, 0, 1), refuse()]);
    }
    filter.push(end(libc::SECCOMP_RET_ALLOW));
    filter
}

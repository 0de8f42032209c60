//! The system calls that are refused in every kind of jail.
//!
//! Namespaces and Landlock decide which files a program can open. They do not limit an owner's operations on a file
//! that is open read-only (its mode, times and leases), and Landlock does not cover operations on other processes of
//! the same user by process id. So the filter refuses these calls, and the calls by which a program would create
//! namespaces or a process that outlives it.

use std::ptr;

use super::enter::check;
use super::failure::{Failed, Step};
use super::kind::Jail;

/// Calls that change the owner, mode, times or attributes of files, lock them or watch them. QEMU uses none of them.
/// `flock` and watches also work on files that are open read-only or not open at all.
const OF_FILES: [libc::c_long; 18] = [
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    REMOVEXATTRAT,
    FILE_SETATTR,
    libc::SYS_utimensat,
    libc::SYS_flock,
    libc::SYS_inotify_init1,
    libc::SYS_fanotify_init,
];

/// Calls that reach other processes. `io_uring` could make any other call.
const OF_OTHERS: [libc::c_long; 43] = [
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
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_get_robust_list,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setaffinity,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semctl,
    libc::SYS_semtimedop,
    libc::SYS_semop,
    libc::SYS_msgget,
    libc::SYS_msgctl,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_perf_event_open,
    libc::SYS_syslog,
];

/// Calls that change the system or the view of it, or expose large parts of the kernel to attacks.
const OF_THE_SYSTEM: [libc::c_long; 20] = [
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_personality,
];

/// Older forms of the calls above, on architectures that have them.
#[cfg(target_arch = "x86_64")]
const OLDER: [libc::c_long; 11] = [
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_inotify_init,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
];
#[cfg(target_arch = "aarch64")]
const OLDER: [libc::c_long; 0] = [];

// Numbers that libc does not define everywhere. From 424 on they are the same on all architectures.
const FCHMODAT2: libc::c_long = 452;
const SETXATTRAT: libc::c_long = 463;
const REMOVEXATTRAT: libc::c_long = 466;
const OPEN_TREE_ATTR: libc::c_long = 467;
const FILE_SETATTR: libc::c_long = 469;

/// All `fcntl` requests that QEMU uses. Others could send signals to any process, or block programs that open a file.
const REQUESTS: [libc::c_int; 14] = [
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_SETFL,
    libc::F_GETLK,
    libc::F_SETLK,
    libc::F_SETLKW,
    libc::F_OFD_GETLK,
    libc::F_OFD_SETLK,
    libc::F_OFD_SETLKW,
    libc::F_ADD_SEALS,
    libc::F_GET_SEALS,
];

/// From <linux/fs.h>, <linux/fsverity.h>, <asm/sockios.h> and <asm/ioctls.h>: requests that set attributes of files
/// that are open read-only, direct a socket's signals to any process, or type into a terminal.
const IOCTLS: [u32; 8] = [
    0x4008_6602, // FS_IOC_SETFLAGS
    0x4004_6602, // FS_IOC32_SETFLAGS
    0x401c_5820, // FS_IOC_FSSETXATTR
    0x4080_6685, // FS_IOC_ENABLE_VERITY
    0x800c_6613, // FS_IOC_SET_ENCRYPTION_POLICY
    0x8901,      // FIOSETOWN
    0x8902,      // SIOCSPGRP
    0x5412,      // TIOCSTI
];

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Numbers from here on belong to another ABI of the kernel, with 32 bits.
const OTHER_NUMBERS: u32 = 0x4000_0000;

// Offsets in `struct seccomp_data` of the number, the architecture and the lower halves of the first two arguments. The
// kernel itself uses only the lower halves, in all calls whose arguments are compared here.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const FIRST_ARGUMENT_AT: u32 = 16;
const SECOND_ARGUMENT_AT: u32 = 24;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
/// For a call that libc tries first and can replace by another.
const UNKNOWN: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

/// The seccomp filter of one program, applied by its child.
#[derive(Debug)]
pub(super) struct Filter {
    instructions: Vec<libc::sock_filter>,
    /// The instruction that compares with the child's own process id, which only the child knows.
    own_pid: usize,
}

impl Filter {
    pub(super) fn new(jail: Jail) -> Self {
        let mut filter = Self { instructions: Vec::new(), own_pid: 0 };
        filter.add([load(ARCHITECTURE_AT), equal(ARCHITECTURE, 1, 0), end(libc::SECCOMP_RET_KILL_PROCESS)]);
        filter.add([load(NUMBER_AT)]);
        // The most frequent of the calls with checked arguments comes first: KVM runs guests through it.
        filter.only_unless(libc::SYS_ioctl, SECOND_ARGUMENT_AT, &IOCTLS);
        filter.only_if(libc::SYS_fcntl, SECOND_ARGUMENT_AT, &REQUESTS.map(|request| request as u32));
        // Signals only to its own threads. The child fills in the process id.
        filter.only_if(libc::SYS_tgkill, FIRST_ARGUMENT_AT, &[0]);
        filter.own_pid = filter.instructions.len() - 3;
        filter.only_if(libc::SYS_prlimit64, FIRST_ARGUMENT_AT, &[0]);
        filter.threads_only();
        match jail {
            // Only the filter protects the sockets of its user.
            Jail::Landlock => {
                for number in [libc::SYS_socket, libc::SYS_socketpair, libc::SYS_connect, libc::SYS_bind] {
                    filter.add([equal(number as u32, 0, 1), end(REFUSE)]);
                }
            }
            // Not every socket family is confined by a network namespace.
            Jail::Users | Jail::UserNamespace | Jail::None => {
                filter.only_if(libc::SYS_socket, FIRST_ARGUMENT_AT, &[libc::AF_UNIX as u32]);
            }
        }
        filter.add([jump(libc::BPF_JGE, OTHER_NUMBERS, 0, 1), end(REFUSE)]);
        filter.add([equal(libc::SYS_clone3 as u32, 0, 1), end(UNKNOWN)]);
        for number in OF_FILES.into_iter().chain(OF_OTHERS).chain(OF_THE_SYSTEM).chain(OLDER) {
            filter.add([equal(number as u32, 0, 1), end(REFUSE)]);
        }
        filter.add([end(ALLOW)]);
        filter
    }

    fn add<const N: usize>(&mut self, instructions: [libc::sock_filter; N]) {
        self.instructions.extend(instructions);
    }

    /// Allows a call only with one of these values of an argument.
    fn only_if(&mut self, number: libc::c_long, argument_at: u32, values: &[u32]) {
        self.look_into(number, argument_at, values, (ALLOW, REFUSE));
    }

    /// Allows a call except with these values of an argument.
    fn only_unless(&mut self, number: libc::c_long, argument_at: u32, values: &[u32]) {
        self.look_into(number, argument_at, values, (REFUSE, ALLOW));
    }

    /// Adds the instructions for one call. The order matters: each jump skips a fixed number of instructions.
    fn look_into(&mut self, number: libc::c_long, argument_at: u32, values: &[u32], ends: (u32, u32)) {
        let length = 2 + 2 * values.len() as u8;
        self.add([equal(number as u32, 0, length), load(argument_at)]);
        for value in values {
            self.add([equal(*value, 0, 1), end(ends.0)]);
        }
        self.add([end(ends.1)]);
    }

    /// Allows `clone` for threads only. Another process would outlive this one, and a thread cannot be created in
    /// another namespace.
    fn threads_only(&mut self) {
        self.add([
            equal(libc::SYS_clone as u32, 0, 4),
            load(FIRST_ARGUMENT_AT),
            jump(libc::BPF_JSET, libc::CLONE_THREAD as u32, 0, 1),
            end(ALLOW),
            end(REFUSE),
        ]);
    }

    /// Runs in the child, after it has set no_new_privs.
    pub(super) fn apply(&mut self) -> Result<(), Failed> {
        // SAFETY: takes no pointers.
        let own = unsafe { libc::getpid() };
        if let Some(instruction) = self.instructions.get_mut(self.own_pid) {
            instruction.k = own as u32;
        }
        let program = libc::sock_fprog {
            len: self.instructions.len() as libc::c_ushort,
            filter: self.instructions.as_mut_ptr(),
        };
        let (mode, program) = (libc::SECCOMP_SET_MODE_FILTER, ptr::from_ref(&program));
        // SAFETY: the filter is as long as it is said to be.
        check(Step::Filter, unsafe { libc::syscall(libc::SYS_seccomp, mode, 0, program) }).map(drop)
    }
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

fn load(at: u32) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at)
}

fn jump(how: u32, value: u32, jt: u8, jf: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | how | libc::BPF_K, jt, jf, value)
}

fn equal(value: u32, jt: u8, jf: u8) -> libc::sock_filter {
    jump(libc::BPF_JEQ, value, jt, jf)
}

fn end(action: u32) -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, action)
}

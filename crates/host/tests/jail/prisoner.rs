//! The attempts of the program in the jail. It prints a line for each: its name, and the result.
#![expect(clippy::print_stdout, reason = "it is how the prisoner reports")]

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::mem::{ManuallyDrop, zeroed};
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::FromRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::ptr;

use serde::{Deserialize, Serialize};

// From <linux/fs.h>.
const FS_IOC_GETFLAGS: libc::c_ulong = 0x8008_6601;
const FS_IOC_SETFLAGS: libc::c_ulong = 0x4008_6602;

// From <linux/keyctl.h>.
const KEYCTL_GET_KEYRING_ID: libc::c_long = 0;
const SESSION_KEYRING: libc::c_long = -3;

/// One attempt. None of them changes the host if it succeeds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Attempt {
    Read(String),
    Write(String),
    /// Makes a file that stays.
    Make(String),
    /// Makes a file and removes it.
    Create(String),
    WriteGiven(i32),
    /// Opens a file again, for writing, by the path of its descriptor.
    Reopen(i32),
    /// Changes the mode, times, an attribute and the flags of an open file.
    ModeOfGiven(i32),
    TimesOfGiven(i32),
    AttributeOfGiven(i32),
    FlagsOfGiven(i32),
    LockGiven(i32),
    LeaseGiven(i32),
    /// Makes the kernel signal another process about a descriptor.
    SignalsOfGiven(i32, i32),
    Mode(String),
    Watch(String),
    List(String),
    Connect(String),
    ConnectAbstract(String),
    /// Sends a datagram from a socket that was made as one of a pair.
    Datagram(String),
    Tcp(u16),
    Udp(u16),
    Listen,
    Family(i32),
    Resolve(String),
    Signal(i32),
    Trace(i32),
    /// Reads the memory of a process at an address.
    Memory(i32, u64),
    Hold(i32),
    Limits(i32),
    Priority(i32),
    Fork,
    MakeNamespace,
    Unshare,
    Keyring,
    SharedMemory,
    Uring,
    Mount(String),
    BecomeRoot,
    MakeDevice(String),
    Chroot,
    HaveCapabilities,
    /// Succeeds if the bounding set still has a capability.
    RegainCapabilities,
    GainPrivileges,
    ExceedLimits,
    CountProcesses,
    SignalItself,
}

/// The name of the file that lists the attempts.
pub(crate) const PLAN: &str = "plan";

/// The arguments that start this program as a prisoner with that plan.
pub(crate) fn arguments(plan: &Path) -> [String; 4] {
    let plan = plan.display().to_string();
    ["--exact".to_owned(), "--nocapture".to_owned(), "prisoner_reports_each_attempt".to_owned(), plan]
}

/// The plan that this program was started with, if it is a prisoner.
pub(crate) fn given_plan() -> Option<PathBuf> {
    let last = PathBuf::from(std::env::args_os().next_back()?);
    last.file_name().is_some_and(|name| name == PLAN).then_some(last)
}

pub(crate) fn try_everything(plan: &Path) {
    let attempts: Vec<(String, Attempt)> = serde_json::from_slice(&fs::read(plan).unwrap()).unwrap();
    for (name, attempt) in attempts {
        let outcome = match attempt.run() {
            Ok(()) => "done".to_owned(),
            Err(error) => format!("refused, {error}"),
        };
        println!("\n[{name}] {outcome}");
    }
}

impl Attempt {
    fn run(&self) -> io::Result<()> {
        let none = ptr::null::<libc::c_void>();
        // SAFETY: all names end with NUL, what is read and written is as large as it is said to be, descriptors were given
        // to this process and stay open, and a child does nothing but end.
        unsafe {
            match self {
                Self::Read(path) => File::open(path)?.read(&mut [0; 1]).map(drop),
                Self::Write(path) => File::options().write(true).open(path)?.write_all(b"x"),
                Self::Make(path) => fs::write(path, "x"),
                Self::Create(path) => File::create_new(path).and_then(|_made| fs::remove_file(path)),
                Self::Mode(path) => fs::set_permissions(path, fs::Permissions::from_mode(0o600)),
                Self::Watch(path) => {
                    let path = CString::new(path.as_str())?;
                    let watch = libc::inotify_init1(libc::IN_CLOEXEC);
                    told(watch.into())?;
                    told(libc::inotify_add_watch(watch, path.as_ptr(), libc::IN_OPEN).into())
                }
                Self::List(path) => fs::read_dir(path).map(drop),
                Self::MakeDevice(path) => {
                    let path = CString::new(path.as_str())?;
                    let device = libc::S_IFCHR | 0o666;
                    told(libc::mknod(path.as_ptr(), device, libc::makedev(1, 1)).into())
                }

                Self::WriteGiven(fd) => ManuallyDrop::new(File::from_raw_fd(*fd)).write_all(b"x"),
                Self::Reopen(fd) => File::options().write(true).open(format!("/proc/self/fd/{fd}")).map(drop),
                Self::ModeOfGiven(fd) => told(libc::fchmod(*fd, 0o600).into()),
                Self::TimesOfGiven(fd) => told(libc::futimens(*fd, ptr::null()).into()),
                Self::AttributeOfGiven(fd) => {
                    told(libc::fsetxattr(*fd, c"user.x".as_ptr(), c"x".as_ptr().cast(), 1, 0).into())
                }
                Self::FlagsOfGiven(fd) => {
                    let mut flags: libc::c_long = 0;
                    told(libc::ioctl(*fd, FS_IOC_GETFLAGS, &raw mut flags).into())?;
                    told(libc::ioctl(*fd, FS_IOC_SETFLAGS, &raw const flags).into())
                }
                Self::LockGiven(fd) => told(libc::flock(*fd, libc::LOCK_EX | libc::LOCK_NB).into()),
                Self::LeaseGiven(fd) => told(libc::fcntl(*fd, libc::F_SETLEASE, libc::F_RDLCK).into()),
                Self::SignalsOfGiven(fd, pid) => told(libc::fcntl(*fd, libc::F_SETOWN, *pid).into()),

                Self::Connect(path) => UnixStream::connect(path).map(drop),
                Self::ConnectAbstract(name) => {
                    UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?).map(drop)
                }
                Self::Datagram(path) => {
                    let (one, _other) = UnixDatagram::pair()?;
                    one.send_to(b"x", path).map(drop)
                }
                Self::Tcp(port) => TcpStream::connect(("127.0.0.1", *port)).map(drop),
                Self::Udp(port) => {
                    UdpSocket::bind("0.0.0.0:0")?.send_to(b"x", ("127.0.0.1", *port)).map(drop)
                }
                // Nothing could connect to its listening socket, not even itself.
                Self::Listen => {
                    let listener = TcpListener::bind("127.0.0.1:0")?;
                    TcpStream::connect(listener.local_addr()?).map(drop)
                }
                Self::Family(family) => told(libc::socket(*family, libc::SOCK_DGRAM, 0).into()),
                Self::Resolve(name) => (name.as_str(), 80).to_socket_addrs().map(drop),

                // Signal 0 is not sent; it only checks whether one could be.
                Self::Signal(pid) => told(libc::kill(*pid, 0).into()),
                // A seized process continues, and is released when its tracer ends.
                Self::Trace(pid) => told(libc::ptrace(libc::PTRACE_SEIZE, *pid, 0, 0)),
                Self::Memory(pid, address) => {
                    let mut byte = 0_u8;
                    let own = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
                    let theirs = libc::iovec { iov_base: *address as *mut libc::c_void, iov_len: 1 };
                    let read = libc::process_vm_readv(*pid, &raw const own, 1, &raw const theirs, 1, 0);
                    told(read as libc::c_long)
                }
                Self::Hold(pid) => told(libc::syscall(libc::SYS_pidfd_open, *pid, 0)),
                Self::Limits(pid) => {
                    let mut limit: libc::rlimit = zeroed();
                    told(libc::prlimit(*pid, libc::RLIMIT_CPU, ptr::null(), &raw mut limit).into())?;
                    told(libc::prlimit(*pid, libc::RLIMIT_CPU, &raw const limit, ptr::null_mut()).into())
                }
                Self::Priority(pid) => {
                    told(libc::setpriority(libc::PRIO_PROCESS, *pid as libc::id_t, 19).into())
                }

                Self::Fork => ended(libc::syscall(libc::SYS_clone, libc::SIGCHLD, none, none, none, none)),
                Self::MakeNamespace => {
                    let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
                    ended(libc::syscall(libc::SYS_clone, flags, none, none, none, none))
                }
                Self::Unshare => told(libc::unshare(libc::CLONE_FS).into()),
                Self::Keyring => {
                    told(libc::syscall(libc::SYS_keyctl, KEYCTL_GET_KEYRING_ID, SESSION_KEYRING, 1))
                }
                Self::SharedMemory => {
                    let id = libc::shmget(libc::IPC_PRIVATE, 4096, 0o600);
                    told(id.into())?;
                    told(libc::shmctl(id, libc::IPC_RMID, ptr::null_mut()).into())
                }
                Self::Uring => {
                    let mut parameters = [0_u32; 30];
                    told(libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()))
                }
                Self::Mount(dir) => {
                    let dir = CString::new(dir.as_str())?;
                    let tmpfs = c"tmpfs".as_ptr();
                    told(libc::mount(tmpfs, dir.as_ptr(), tmpfs, 0, none).into())?;
                    told(libc::umount2(dir.as_ptr(), libc::MNT_DETACH).into())
                }
                Self::BecomeRoot => told(libc::setresuid(0, 0, 0).into()),
                Self::Chroot => told(libc::chroot(c"/".as_ptr()).into()),
                Self::HaveCapabilities => capabilities(),
                Self::RegainCapabilities => {
                    let left = (0..64).any(|number| libc::prctl(libc::PR_CAPBSET_READ, number, 0, 0, 0) == 1);
                    if left { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
                }
                Self::GainPrivileges => {
                    let fixed = libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
                    if fixed == 1 { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
                }
                Self::ExceedLimits => limits(),
                // It is the first process of its own namespace, and there is no other.
                Self::CountProcesses if std::process::id() == 1 => Err(io::ErrorKind::NotFound.into()),
                Self::CountProcesses => Ok(()),
                Self::SignalItself => {
                    let thread = libc::syscall(libc::SYS_gettid);
                    told(libc::syscall(libc::SYS_tgkill, std::process::id(), thread, 0))
                }
            }
        }
    }
}

fn told(result: libc::c_long) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Succeeds if it may write core files, have message queues, or open more files than QEMU needs.
fn limits() -> io::Result<()> {
    const FILES: u64 = 4096;
    for (resource, most) in [(libc::RLIMIT_CORE, 0), (libc::RLIMIT_MSGQUEUE, 0), (libc::RLIMIT_NOFILE, FILES)]
    {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the kernel writes one limit.
        told(unsafe { libc::getrlimit(resource, &raw mut limit) }.into())?;
        if limit.rlim_max > most {
            return Ok(());
        }
    }
    Err(io::ErrorKind::PermissionDenied.into())
}

/// The result of a `clone`. The child ends at once.
fn ended(pid: libc::c_long) -> io::Result<()> {
    told(pid)?;
    // SAFETY: the child of a process with threads may do nothing but this; its exit status is not read.
    unsafe {
        if pid == 0 {
            libc::_exit(0);
        }
        told(libc::waitpid(pid as i32, ptr::null_mut(), 0).into())
    }
}

/// Succeeds if there is a capability in any of the sets.
fn capabilities() -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let (mut header, mut sets) = ([VERSION_3, 0], [0_u32; 6]);
    // SAFETY: the kernel writes two sets of three words.
    told(unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) })?;
    if sets.iter().any(|set| *set != 0) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
}

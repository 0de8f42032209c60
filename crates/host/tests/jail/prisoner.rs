//! What the program in the jail tries. It prints a line for each attempt: its name, and how it went.
#![expect(clippy::print_stdout, reason = "it is how the prisoner reports")]

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::FromRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use serde::{Deserialize, Serialize};

/// One thing to try.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Attempt {
    Read(String),
    Write(String),
    Create(String),
    ReadGiven(i32),
    WriteGiven(i32),
    List(String),
    Connect(String),
    ConnectAbstract(String),
    Tcp(u16),
    Udp(u16),
    Listen,
    Resolve(String),
    Signal(i32),
    Trace(i32),
    Mount,
    BecomeRoot,
    MakeDevice(String),
    Chroot,
    HaveCapabilities,
    GainPrivileges,
    ExceedLimits,
    CountProcesses,
}

/// Reads the attempts from the file that the last argument names.
pub(crate) fn try_everything() {
    let plan = std::env::args().next_back().unwrap();
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
        match self {
            Self::Read(path) => File::open(path)?.read(&mut [0; 1]).map(drop),
            Self::Write(path) => File::options().write(true).open(path)?.write_all(b"x"),
            Self::Create(path) => fs::write(path, "x"),
            // SAFETY: the descriptor was given to this process, which uses it here only.
            Self::ReadGiven(fd) => unsafe { File::from_raw_fd(*fd) }.read(&mut [0; 1]).map(drop),
            // SAFETY: as above.
            Self::WriteGiven(fd) => unsafe { File::from_raw_fd(*fd) }.write_all(b"x"),
            Self::List(path) => fs::read_dir(path).map(drop),
            Self::Connect(path) => UnixStream::connect(path).map(drop),
            Self::ConnectAbstract(name) => {
                UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?).map(drop)
            }
            Self::Tcp(port) => TcpStream::connect(("127.0.0.1", *port)).map(drop),
            Self::Udp(port) => UdpSocket::bind("0.0.0.0:0")?.send_to(b"x", ("127.0.0.1", *port)).map(drop),
            // Nobody could connect to what it listens on, itself included.
            Self::Listen => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                TcpStream::connect(listener.local_addr()?).map(drop)
            }
            Self::Resolve(name) => std::net::ToSocketAddrs::to_socket_addrs(&(name.as_str(), 80)).map(drop),
            // SAFETY: signal 0 is not sent; it only asks whether one could be.
            Self::Signal(pid) => told(unsafe { libc::kill(*pid, 0) }.into()),
            // SAFETY: takes no pointers that are read.
            Self::Trace(pid) => told(unsafe { libc::ptrace(libc::PTRACE_ATTACH, *pid, 0, 0) }),
            Self::Mount => {
                let none = std::ptr::null();
                let (tmpfs, target) = (c"tmpfs".as_ptr(), c"/dev".as_ptr());
                // SAFETY: both names end with NUL, and there are no options.
                told(unsafe { libc::mount(tmpfs, target, tmpfs, 0, none) }.into())
            }
            // SAFETY: takes no pointers.
            Self::BecomeRoot => told(unsafe { libc::setresuid(0, 0, 0) }.into()),
            Self::MakeDevice(path) => {
                let path = CString::new(path.as_str())?;
                // SAFETY: the name ends with NUL.
                told(unsafe { libc::mknod(path.as_ptr(), libc::S_IFCHR | 0o666, libc::makedev(1, 1)) }.into())
            }
            // SAFETY: the name ends with NUL.
            Self::Chroot => told(unsafe { libc::chroot(c"/dev".as_ptr()) }.into()),
            Self::HaveCapabilities => capabilities(),
            Self::GainPrivileges => {
                // SAFETY: takes no pointers.
                let fixed = unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) };
                if fixed == 1 { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
            }
            Self::ExceedLimits => limits(),
            // It is the first process of its own, and there is no other.
            Self::CountProcesses => {
                if std::process::id() == 1 {
                    Err(io::ErrorKind::NotFound.into())
                } else {
                    Ok(())
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

/// Succeeds if there is a capability in any of the sets, or one that could be had.
fn capabilities() -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let (mut header, mut sets) = ([VERSION_3, 0], [0_u32; 6]);
    // SAFETY: the kernel writes two sets of three words.
    told(unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) })?;
    // SAFETY: takes no pointers.
    let bounded = (0..64).any(|number| unsafe { libc::prctl(libc::PR_CAPBSET_READ, number, 0, 0, 0) } == 1);
    if sets.iter().any(|set| *set != 0) || bounded { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
}

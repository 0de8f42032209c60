//! Tells whether a VM has a file open.
//!
//! QEMU locks single bytes of a file to say how it uses the file, and what others must not do meanwhile. These locks
//! are only looked at here, so that no merge happens under a VM that the daemon does not know of.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::qcow2_header::HeaderError;

/// QEMU's number for the permission to write, added to the first byte of each kind of lock.
const WRITE: i64 = 1;

/// Locked by a process that writes to the file.
const WRITES: i64 = 100 + WRITE;

/// Locked by a process that needs the file unchanged: every VM does so for each layer it reads.
const RELIES_ON: i64 = 200 + WRITE;

/// Whether a VM reads or writes a file.
pub(super) fn is_open(file: &File) -> io::Result<bool> {
    is_locked(file, RELIES_ON)
}

/// Refuses a file that a VM reads or writes.
pub(super) fn refuse_open(file: &File) -> Result<(), HeaderError> {
    match is_open(file)? {
        true => Err(HeaderError::InUse),
        false => Ok(()),
    }
}

/// Refuses a file that a VM writes to.
pub(super) fn refuse_written(file: &File) -> Result<(), HeaderError> {
    match is_locked(file, WRITES)? {
        true => Err(HeaderError::InUse),
        false => Ok(()),
    }
}

fn is_locked(file: &File, byte: i64) -> io::Result<bool> {
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and the kernel writes only to `lock`, which
    // is of the type that this command expects.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) } {
        0 => Ok(i32::from(lock.l_type) != libc::F_UNLCK),
        _ => Err(io::Error::last_os_error()),
    }
}

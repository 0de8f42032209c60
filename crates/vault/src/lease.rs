//! File leases: the kernel's guarantee that no other process has a file open for writing, or open at all.
//!
//! While a lease is held, a conflicting `open` by another process blocks, and the holder can see that it waits. So a
//! file can be read and replaced with the certainty that no writer has opened the old one unnoticed, and a new file can
//! be in its place for a moment without being read.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libc::c_int;

/// The kernel signals the holder when another process waits. This code polls instead, so it selects a signal that is
/// ignored by default; the usual one would end the process.
const UNHEARD: c_int = libc::SIGURG;

/// `F_SETSIG`, which the libc crate exports under a feature only.
const F_SETSIG: c_int = 10;

#[derive(Debug)]
pub(crate) enum Leased<'a> {
    Held(Lease<'a>),
    /// Another process has the file open already.
    Taken,
    /// Leases do not work on this file system, or on a file of another user.
    Unavailable,
}

/// A held lease. It is released on drop.
#[derive(Debug)]
pub(crate) struct Lease<'a> {
    file: BorrowedFd<'a>,
    kind: c_int,
}

/// The kind of process that waits for the release of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    Nobody,
    Reader,
    Writer,
}

/// Takes a lease against writers. The file must be open for reading only.
pub(crate) fn no_writers(file: &impl AsFd) -> Leased<'_> {
    take(file.as_fd(), libc::F_RDLCK)
}

/// Takes a lease against any other opener.
pub(crate) fn nobody_else(file: &impl AsFd) -> Leased<'_> {
    take(file.as_fd(), libc::F_WRLCK)
}

fn take(file: BorrowedFd<'_>, kind: c_int) -> Leased<'_> {
    let asked = control(file, F_SETSIG, UNHEARD).and_then(|_| control(file, libc::F_SETLEASE, kind));
    match asked {
        Ok(_) => Leased::Held(Lease { file, kind }),
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Leased::Taken,
        Err(_) => Leased::Unavailable,
    }
}

impl Lease<'_> {
    pub(crate) fn waiting(&self) -> Waiting {
        // The kernel returns the lease type that would let the waiting process in.
        match control(self.file, libc::F_GETLEASE, 0) {
            Ok(kind) if kind == self.kind => Waiting::Nobody,
            Ok(libc::F_RDLCK) => Waiting::Reader,
            Ok(_) | Err(_) => Waiting::Writer,
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        // This only fails if the kernel has already revoked the lease.
        let _ = control(self.file, libc::F_SETLEASE, libc::F_UNLCK);
    }
}

fn control(file: BorrowedFd<'_>, command: c_int, argument: c_int) -> std::io::Result<c_int> {
    // SAFETY: the descriptor is open for the length of the call, and the three commands above take an integer and touch
    // no memory of this process.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
    if answer < 0 { Err(std::io::Error::last_os_error()) } else { Ok(answer) }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};

    use super::*;

    #[test]
    fn lease_is_refused_for_an_open_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("note");
        let writer = File::create(&path).unwrap();
        let reader = File::open(&path).unwrap();
        assert!(!matches!(no_writers(&reader), Leased::Held(_)));
        assert!(!matches!(nobody_else(&writer), Leased::Held(_)));
        drop(writer);
        assert!(!matches!(no_writers(&reader), Leased::Taken));
        assert!(!matches!(nobody_else(&reader), Leased::Taken));
    }

    fn comes(lease: &Lease<'_>) -> Waiting {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while lease.waiting() == Waiting::Nobody && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        lease.waiting()
    }

    #[test]
    fn waiting_openers_are_seen_until_lease_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("note");
        std::fs::write(&path, "x").unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let Leased::Held(lease) = nobody_else(&file) else { return };
        let other = path.clone();
        let reader = std::thread::spawn(move || File::open(other).map(drop));
        assert_eq!(comes(&lease), Waiting::Reader);
        drop(lease);
        reader.join().unwrap().unwrap();
        drop(file);

        let file = File::open(&path).unwrap();
        let Leased::Held(lease) = no_writers(&file) else { return };
        drop(File::open(&path).unwrap());
        assert_eq!(lease.waiting(), Waiting::Nobody, "readers are let in");
        let writer = std::thread::spawn(move || OpenOptions::new().append(true).open(path).map(drop));
        assert_eq!(comes(&lease), Waiting::Writer);
        drop(lease);
        writer.join().unwrap().unwrap();
    }
}

//! Leases: the kernel's word that nobody else has a file open for writing, or open at all.
//!
//! While a lease is held, whoever opens the file in a way that the lease rules out waits in `open`, and the holder can see
//! that somebody does. So a file can be read and replaced with the certainty that no writer got hold of the old one
//! unseen, and a new one can stand in its place for a moment without being seen.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libc::c_int;

/// The kernel tells the holder by a signal that somebody waits. Ours is looked up instead, so it gets one that every
/// process ignores by default; the usual one would end the process.
const UNHEARD: c_int = libc::SIGURG;

/// `F_SETSIG`, which the C library has under a feature only.
const F_SETSIG: c_int = 10;

#[derive(Debug)]
pub(crate) enum Leased<'a> {
    Held(Lease<'a>),
    /// Somebody has the file open already.
    Taken,
    /// Not on this file system, or not of a file that belongs to somebody else.
    Unavailable,
}

/// Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Lease<'a> {
    file: BorrowedFd<'a>,
    kind: c_int,
}

/// Who waits for a lease to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    Nobody,
    Reader,
    Writer,
}

/// While it is held nobody writes. The file is open for reading only.
pub(crate) fn no_writers(file: &impl AsFd) -> Leased<'_> {
    take(file.as_fd(), libc::F_RDLCK)
}

/// While it is held nobody else has the file open.
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
        // The kernel says what the lease must become to let in who waits.
        match control(self.file, libc::F_GETLEASE, 0) {
            Ok(kind) if kind == self.kind => Waiting::Nobody,
            Ok(libc::F_RDLCK) => Waiting::Reader,
            Ok(_) | Err(_) => Waiting::Writer,
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        // It can only fail if the kernel has taken the lease back already.
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
    fn a_lease_is_refused_while_somebody_has_the_file_open() {
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
    fn who_comes_is_seen_and_waits_until_the_lease_is_given_back() {
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

//! Registers descriptors with the runtime. The safety requirements of the runtime are met in this one place.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::spawn::Child;

/// Watches a descriptor.
pub(crate) fn descriptor(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open and stays the same descriptor until it is dropped, and `AsyncFd` owns it.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}

/// Watches for the end of a process.
pub(crate) fn child(child: Child) -> io::Result<AsyncFd<Child>> {
    // SAFETY: a `Child` owns its pidfd from beginning to end and never replaces it, and `AsyncFd` owns the child.
    Ok(unsafe { AsyncFd::register_with_interest(child, Interest::READABLE) }?)
}

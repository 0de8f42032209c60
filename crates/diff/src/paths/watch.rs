//! When a comparison has to end although it is not complete: somebody said so, or its time is up.
//!
//! A crafted file system can ask for far more work than an honest one of its size. All work is reading, or looking at
//! what was read, so both look here.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::options::DiffOptions;
use super::result::DiffError;
use crate::read_at::ReadAt;

#[derive(Clone, Copy, Debug)]
pub(super) struct Watch<'a> {
    deadline: Option<Instant>,
    cancelled: Option<&'a AtomicBool>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(options: &DiffOptions<'a>) -> Self {
        Self { deadline: options.deadline, cancelled: options.cancelled }
    }

    /// Why to end now, if there is a reason.
    pub(super) fn over(&self) -> Option<DiffError> {
        if self.cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed)) {
            return Some(DiffError::Cancelled);
        }
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline).then_some(DiffError::Deadline)
    }

    pub(super) fn check(&self) -> Result<(), DiffError> {
        self.over().map_or(Ok(()), Err)
    }
}

/// A disk that cannot be read any more once the comparison has to end.
#[derive(Debug)]
pub(super) struct Watched<'a, D: ?Sized> {
    pub(super) disk: &'a D,
    pub(super) watch: Watch<'a>,
}

impl<D: ReadAt + ?Sized> ReadAt for Watched<'_, D> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        match self.watch.over() {
            None => self.disk.read_at(offset, buf),
            Some(_) => Err(io::ErrorKind::Interrupted.into()),
        }
    }
}

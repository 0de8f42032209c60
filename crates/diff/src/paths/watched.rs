//! A disk whose reads fail once the comparison has to end.

use std::io;

use crate::read_at::ReadAt;
use crate::watch::Watch;

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

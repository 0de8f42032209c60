//! Access to both file systems, which reads once where they cannot differ.

use std::ops::Range;

use super::options::DiffOptions;
use super::result::DiffError;
use crate::ext4::{Entries, FileSystem, Inode};
use crate::read_at::ReadAt;

pub(super) struct Sides<'a, O: ?Sized, N: ?Sized> {
    pub(super) old: FileSystem<'a, O>,
    pub(super) new: FileSystem<'a, N>,
    is_shared: Option<&'a dyn Fn(Range<u64>) -> bool>,
}

impl<'a, O: ReadAt + ?Sized, N: ReadAt + ?Sized> Sides<'a, O, N> {
    pub(super) fn open(old: &'a O, new: &'a N, options: &DiffOptions<'a>) -> Result<Self, DiffError> {
        Ok(Self {
            old: FileSystem::open(old).map_err(DiffError::Old)?,
            new: FileSystem::open(new).map_err(DiffError::New)?,
            is_shared: options.is_shared,
        })
    }

    /// Whether it is known which bytes the disks share.
    pub(super) fn tells_sharing(&self) -> bool {
        self.is_shared.is_some()
    }

    /// Whether these bytes are the same on both sides, including the journals.
    pub(super) fn is_shared(&self, range: Range<u64>) -> bool {
        self.is_shared.is_some_and(|is_shared| {
            !self.old.is_replaced(&range) && !self.new.is_replaced(&range) && is_shared(range)
        })
    }

    /// The inodes with these numbers; `None` if they are the same.
    pub(super) fn different(&self, old: u32, new: u32) -> Result<Option<(Inode, Inode)>, DiffError> {
        if old == new {
            let place = self.old.inode_place(old).map_err(DiffError::Old)?;
            let same_place = self.new.inode_place(new).map_err(DiffError::New)? == place;
            if same_place && self.is_shared(place) {
                return Ok(None);
            }
        }
        let old = self.old.inode(old).map_err(DiffError::Old)?;
        let new = self.new.inode(new).map_err(DiffError::New)?;
        let same = old.number() == new.number() && old.record() == new.record();
        Ok((!same).then_some((old, new)))
    }

    /// The entries of a directory that is in both trees; those of the new side are `None` if they are the same.
    pub(super) fn entries(&self, old: u32, new: u32) -> Result<(Entries, Option<Entries>), DiffError> {
        let old_inode = self.old.inode(old).map_err(DiffError::Old)?;
        let old_extents = self.old.directory_extents(&old_inode).map_err(DiffError::Old)?;
        let old_entries = || self.old.entries_in(&old_inode, &old_extents).map_err(DiffError::Old);
        let block = self.old.block_size();
        let unchanged = self.different(old, new)?.is_none()
            && old_extents.iter().all(|extent| {
                let start = extent.physical * block;
                self.is_shared(start..start + u64::from(extent.blocks) * block)
            });
        if unchanged {
            return Ok((old_entries()?, None));
        }
        let new_inode = self.new.inode(new).map_err(DiffError::New)?;
        let new_entries = self.new.entries(&new_inode).map_err(DiffError::New)?;
        Ok((old_entries()?, Some(new_entries)))
    }
}

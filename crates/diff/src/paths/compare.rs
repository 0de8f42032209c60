//! Decides whether a path that is in both trees was modified:
//!
//! * Anything: its type, permissions, owner, group or extended attributes differ.
//! * A regular file: its size or modification time differ. Its content is compared if it was touched in another way
//!   (another inode, another change time), or if it is known which blocks the disks share.
//! * A symbolic link: the target differs. A device: its numbers differ.
//! * A directory: only the first rule; added and removed entries are listed themselves.
//!
//! So a file that only got another link, or the same owner again, is not listed. A file whose modification time was set
//! back after a change is listed, and so is one that was written twice within a tick of the clock. Content is only read
//! where the disks do not share it. A renamed file counts as removed and added. Access times are ignored. Content that
//! cannot be read, or exceeds the options' limit, counts as different.

use super::sides::Sides;
use crate::ext4::{Ext4Error, Extent, Inode, Kind};
use crate::read_at::ReadAt;
use crate::watch::Watch;

/// The number of bytes of a file that are read at a time.
const STEP: usize = 1 << 20;

pub(super) struct Compare<'s, 'a, O: ?Sized, N: ?Sized> {
    pub(super) sides: &'s Sides<'a, O, N>,
    /// The number of content bytes that may still be read.
    pub(super) budget: u64,
    pub(super) watch: Watch<'a>,
}

impl<O: ReadAt + ?Sized, N: ReadAt + ?Sized> Compare<'_, '_, O, N> {
    /// Compares two inodes whose records differ.
    pub(super) fn is_modified(&mut self, old: &Inode, new: &Inode) -> bool {
        if old.kind() != new.kind() || owner(old) != owner(new) {
            return true;
        }
        let differs = match old.kind() {
            Kind::File => {
                let written = (old.size(), old.mtime()) != (new.size(), new.mtime());
                written
                    || (touched(old) != touched(new) || self.sides.tells_sharing())
                        && self.content_differs(old, new)
            }
            Kind::Symlink => match (self.sides.old.target(old), self.sides.new.target(new)) {
                (Ok(old), Ok(new)) => old != new,
                (Err(_), _) | (_, Err(_)) => true,
            },
            Kind::CharacterDevice | Kind::BlockDevice => old.block()[..8] != new.block()[..8],
            Kind::Directory | Kind::Pipe | Kind::Socket => false,
        };
        differs || self.attributes_differ(old, new)
    }

    fn attributes_differ(&mut self, old: &Inode, new: &Inode) -> bool {
        if old.attributes() != new.attributes() {
            return true;
        }
        match (old.attribute_block(), new.attribute_block()) {
            (0, 0) => false,
            (0, _) | (_, 0) => true,
            (old, new) => match (self.sides.old.block(old), self.sides.new.block(new)) {
                (Ok(old), Ok(new)) => attribute_list(&old) != attribute_list(&new),
                (Err(_), _) | (_, Err(_)) => true,
            },
        }
    }

    pub(super) fn content_differs(&mut self, old: &Inode, new: &Inode) -> bool {
        let extents = self.sides.old.extents(old).and_then(|old| Ok((old, self.sides.new.extents(new)?)));
        let same = match extents {
            Ok((old_extents, new_extents)) if old_extents == new_extents => {
                self.blocks_are_same(&old_extents)
            }
            Ok((old_extents, new_extents)) => self.bytes_are_same(&old_extents, &new_extents, old.size()),
            Err(_) => return true,
        };
        !same.unwrap_or(false)
    }

    /// Compares the same blocks of both disks.
    fn blocks_are_same(&mut self, extents: &[Extent]) -> Result<bool, Ext4Error> {
        let block_size = self.sides.old.block_size();
        if block_size != self.sides.new.block_size() {
            return Ok(false);
        }
        let (mut old, mut new) = (Vec::new(), Vec::new());
        for extent in extents.iter().filter(|extent| extent.written) {
            let start = extent.physical * block_size;
            let end = start + u64::from(extent.blocks) * block_size;
            for at in (start..end).step_by(STEP) {
                // Checked here because shared blocks are not read, and there can be any number of extents.
                if self.watch.over().is_some() {
                    return Ok(false);
                }
                let step = at..end.min(at + STEP as u64);
                if self.sides.is_shared(step.clone()) {
                    continue;
                }
                let length = (step.end - step.start) as usize;
                if !self.spend(length) {
                    return Ok(false);
                }
                old.resize(length, 0);
                new.resize(length, 0);
                self.sides.old.read(at, &mut old)?;
                self.sides.new.read(at, &mut new)?;
                if old != new {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Compares the content of two files that lie in different places.
    fn bytes_are_same(
        &mut self,
        old_extents: &[Extent],
        new_extents: &[Extent],
        size: u64,
    ) -> Result<bool, Ext4Error> {
        let (mut old, mut new) = (Vec::new(), Vec::new());
        for at in (0..size).step_by(STEP) {
            let length = (size - at).min(STEP as u64) as usize;
            if !self.spend(length) {
                return Ok(false);
            }
            old.resize(length, 0);
            new.resize(length, 0);
            self.sides.old.read_file(old_extents, at, &mut old)?;
            self.sides.new.read_file(new_extents, at, &mut new)?;
            if old != new {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Subtracts the bytes that a step reads on both sides from the budget.
    fn spend(&mut self, length: usize) -> bool {
        match self.budget.checked_sub(2 * length as u64) {
            Some(left) => {
                self.budget = left;
                true
            }
            None => {
                self.budget = 0;
                false
            }
        }
    }
}

fn owner(inode: &Inode) -> (u16, u32, u32) {
    (inode.mode(), inode.uid(), inode.gid())
}

/// The values that differ after any change of a file, or if it is another file of the same name.
fn touched(inode: &Inode) -> (u32, u32, (u32, u32)) {
    (inode.number(), inode.generation(), inode.ctime())
}

/// The part of an attribute block with the attributes, without the header, which counts the files that share it.
fn attribute_list(block: &[u8]) -> &[u8] {
    block.get(32..).unwrap_or_default()
}

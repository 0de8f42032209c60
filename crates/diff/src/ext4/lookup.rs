//! Finds a file by its path.

use std::collections::VecDeque;

use super::error::Ext4Error;
use super::filesystem::{FileSystem, ROOT_INODE};
use super::inode::{Inode, Kind};
use crate::read_at::ReadAt;

/// The most symbolic links in one lookup, as in Linux.
const MAX_LINKS: u32 = 40;

/// The most path components in one lookup, including those of links. Each requires reading a directory.
const MAX_STEPS: u32 = 256;

impl<D: ReadAt + ?Sized> FileSystem<'_, D> {
    /// Resolves a path for a process whose root directory is this file system. Symbolic links are followed. `None` if
    /// there is no such file, or the links form a loop.
    pub fn find(&self, path: &[u8]) -> Result<Option<Inode>, Ext4Error> {
        let mut rest: VecDeque<Vec<u8>> = names(path).collect();
        let mut above = Vec::new();
        let mut here = self.inode(ROOT_INODE)?;
        let (mut links, mut steps) = (0, 0);
        while let Some(name) = rest.pop_front() {
            steps += 1;
            if steps > MAX_STEPS || here.kind() != Kind::Directory {
                return Ok(None);
            }
            if name == b".." {
                // The root directory is its own parent.
                here = above.pop().unwrap_or(here);
                continue;
            }
            let entries = self.entries(&here)?;
            let Some(number) = entries.iter().find(|entry| entry.name == name).map(|entry| entry.inode)
            else {
                return Ok(None);
            };
            let found = self.inode(number)?;
            if found.kind() != Kind::Symlink {
                above.push(std::mem::replace(&mut here, found));
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Ok(None);
            }
            let target = self.target(&found)?;
            if target.first() == Some(&b'/') {
                above.clear();
                here = self.inode(ROOT_INODE)?;
            }
            for name in names(&target).collect::<Vec<_>>().into_iter().rev() {
                rest.push_front(name);
            }
        }
        Ok(Some(here))
    }
}

fn names(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")).map(<[u8]>::to_vec)
}

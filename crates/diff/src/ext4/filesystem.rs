//! A file system on a disk: inodes, directories and the bytes of files.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::directory::Entries;
use super::error::Ext4Error;
use super::extents::{Extent, Tree};
use super::groups::inode_tables;
use super::inode::{Inode, Kind};
use super::journal::{Replacement, replay};
use super::superblock::{self, Superblock};
use crate::cache::Cache;
use crate::read_at::ReadAt;

pub const ROOT_INODE: u32 = 2;

/// Inode tables are read and cached in pieces of this size.
const PIECE: u64 = 32 << 10;

/// The number of cached pieces: 16 MiB, the inodes of 65,536 files.
const CACHED_PIECES: usize = 512;

/// The largest directory: some million names. It is in memory while it is compared.
const MAX_DIRECTORY: u64 = 128 << 20;

/// The most blocks of extent trees that are read in total. Few directories need one; a damaged file system could
/// require any number.
const MAX_NODES: u32 = 1 << 20;

/// The longest target of a symbolic link. No system call accepts a longer one.
const MAX_TARGET: u64 = 4096;

/// An ext4 file system in its state after its journal is replayed.
#[derive(Debug)]
pub struct FileSystem<'d, D: ?Sized> {
    disk: &'d D,
    superblock: Superblock,
    tables: Box<[u64]>,
    replacements: HashMap<u64, Replacement>,
    pieces: RefCell<Cache<u64, Arc<[u8]>>>,
    /// The number of extent tree blocks read so far.
    nodes: Cell<u32>,
}

impl<'d, D: ReadAt + ?Sized> FileSystem<'d, D> {
    pub fn open(disk: &'d D) -> Result<Self, Ext4Error> {
        let mut start = [0; superblock::LENGTH];
        read(disk, superblock::OFFSET, &mut start)?;
        let superblock = Superblock::parse(&start)?;
        let tables = inode_tables(&superblock, |offset, buf| read(disk, offset, buf))?;
        let pieces = || RefCell::new(Cache::new(CACHED_PIECES));
        let replacements = HashMap::new();
        let on_disk = Self { disk, superblock, tables, replacements, pieces: pieces(), nodes: Cell::new(0) };
        let replacements = on_disk.replay()?;
        if replacements.is_empty() {
            return Ok(on_disk);
        }
        // The journal may hold a newer superblock and newer descriptors, if the file system has grown.
        let replayed = Self { replacements, pieces: pieces(), ..on_disk };
        replayed.read(superblock::OFFSET, &mut start)?;
        let superblock = Superblock::parse(&start)?;
        let tables = inode_tables(&superblock, |offset, buf| replayed.read(offset, buf))?;
        Ok(Self { superblock, tables, ..replayed })
    }

    fn replay(&self) -> Result<HashMap<u64, Replacement>, Ext4Error> {
        match self.superblock.recover {
            Some(number) => {
                let extents = self.extents(&self.inode(number)?)?;
                replay(&extents, self.superblock.blocks, |block| self.block(block))
            }
            None => Ok(HashMap::new()),
        }
    }

    /// The number of blocks that are taken from the journal.
    pub fn replayed_blocks(&self) -> usize {
        self.replacements.len()
    }

    pub fn block_size(&self) -> u64 {
        self.superblock.block_size()
    }

    /// Reads an inode. Fails for inodes that are not in use.
    pub fn inode(&self, number: u32) -> Result<Inode, Ext4Error> {
        let record = self.inode_place(number)?;
        let piece = self.piece(record.start / PIECE)?;
        let start = (record.start % PIECE) as usize;
        let large = self.superblock.large_directories;
        Inode::parse(number, piece, start, self.superblock.inode_size, large)
            .ok_or(Ext4Error::Inode { number, what: "it is not in use" })
    }

    /// The position of an inode on the disk.
    pub(crate) fn inode_place(&self, number: u32) -> Result<Range<u64>, Ext4Error> {
        let missing = Ext4Error::NoInode { number };
        let Some(index) = number.checked_sub(1).filter(|_| number <= self.superblock.inodes) else {
            return Err(missing);
        };
        let per_group = self.superblock.inodes_per_group;
        let table = self.tables.get((index / per_group) as usize).ok_or(missing)?;
        let size = self.superblock.inode_size as u64;
        let start = table + u64::from(index % per_group) * size;
        Ok(start..start + size)
    }

    /// The names in a directory.
    pub fn entries(&self, directory: &Inode) -> Result<Entries, Ext4Error> {
        self.entries_in(directory, &self.directory_extents(directory)?)
    }

    /// A directory's extents, limited to its size.
    pub(crate) fn directory_extents(&self, directory: &Inode) -> Result<Vec<Extent>, Ext4Error> {
        let (number, size) = (directory.number(), directory.size());
        if directory.kind() != Kind::Directory {
            return Err(Ext4Error::Inode { number, what: "it is not a directory" });
        }
        if size > MAX_DIRECTORY {
            return Err(Ext4Error::DirectorySize { number, size, limit: MAX_DIRECTORY });
        }
        let blocks = (size >> self.superblock.block_bits) as u32;
        let mut extents = self.extents(directory)?;
        extents.retain(|extent| extent.logical < blocks && extent.written);
        for extent in &mut extents {
            extent.blocks = extent.blocks.min(blocks - extent.logical);
        }
        Ok(extents)
    }

    pub(crate) fn entries_in(&self, directory: &Inode, extents: &[Extent]) -> Result<Entries, Ext4Error> {
        let mut entries = Entries::default();
        let block_size = self.block_size() as usize;
        for extent in extents {
            let mut content = vec![0; extent.blocks as usize * block_size];
            self.read(extent.physical * self.block_size(), &mut content)?;
            for (index, block) in (extent.logical..).zip(content.chunks_exact(block_size)) {
                let number = directory.number();
                let wrong = |what| Ext4Error::Directory { number, block: index, what };
                entries.add_block(block, wrong)?;
            }
        }
        entries.sort();
        Ok(entries)
    }

    /// The target of a symbolic link.
    pub fn target(&self, link: &Inode) -> Result<Vec<u8>, Ext4Error> {
        if let Some(target) = link.short_target() {
            return Ok(target.to_vec());
        }
        if link.kind() != Kind::Symlink || link.size() > MAX_TARGET {
            return Err(Ext4Error::Inode { number: link.number(), what: "it is not a symbolic link" });
        }
        let mut target = vec![0; link.size() as usize];
        self.read_file(&self.extents(link)?, 0, &mut target)?;
        Ok(target)
    }

    /// The extents of a file's content.
    pub fn extents(&self, inode: &Inode) -> Result<Vec<Extent>, Ext4Error> {
        let read = |block| {
            self.nodes.set(self.nodes.get() + 1);
            match self.nodes.get() {
                ..MAX_NODES => self.block(block),
                MAX_NODES.. => Err(Ext4Error::Extents {
                    number: inode.number(),
                    what: "all have too many nodes together",
                }),
            }
        };
        Tree::extents(inode, self.superblock.blocks, &read)
    }

    /// Reads the content of a file, given its extents. Gaps read as zeroes.
    pub fn read_file(&self, extents: &[Extent], offset: u64, buf: &mut [u8]) -> Result<(), Ext4Error> {
        buf.fill(0);
        let end = offset.saturating_add(buf.len() as u64);
        let bits = self.superblock.block_bits;
        let first = extents.partition_point(|extent| {
            (u64::from(extent.logical) + u64::from(extent.blocks)) << bits <= offset
        });
        for extent in &extents[first..] {
            let start = u64::from(extent.logical) << bits;
            let (from, to) = (start.max(offset), (start + (u64::from(extent.blocks) << bits)).min(end));
            if from >= to {
                break;
            }
            if extent.written {
                let part = &mut buf[(from - offset) as usize..(to - offset) as usize];
                self.read((extent.physical << bits) + (from - start), part)?;
            }
        }
        Ok(())
    }

    /// Whether the journal replaces any of these bytes of the disk.
    pub(crate) fn is_replaced(&self, range: &Range<u64>) -> bool {
        let bits = self.superblock.block_bits;
        !self.replacements.is_empty()
            && (range.start >> bits..=range.end.saturating_sub(1) >> bits)
                .any(|block| self.replacements.contains_key(&block))
    }

    /// Reads a block of the disk.
    pub(crate) fn block(&self, block: u64) -> Result<Vec<u8>, Ext4Error> {
        if block >= self.superblock.blocks {
            return Err(Ext4Error::NoBlock { block });
        }
        let mut content = vec![0; self.block_size() as usize];
        self.read(block << self.superblock.block_bits, &mut content)?;
        Ok(content)
    }

    /// A piece of the disk, cached for the next inode.
    fn piece(&self, index: u64) -> Result<Arc<[u8]>, Ext4Error> {
        if let Some(piece) = self.pieces.borrow_mut().get(index, |_| 1) {
            return Ok(piece);
        }
        let start = index * PIECE;
        let end = (start + PIECE).min(self.superblock.blocks << self.superblock.block_bits);
        let mut bytes = vec![0; end.saturating_sub(start) as usize];
        self.read(start, &mut bytes)?;
        let piece: Arc<[u8]> = bytes.into();
        self.pieces.borrow_mut().insert(index, piece.clone(), 1);
        Ok(piece)
    }

    /// Reads the disk in its state after the journal is replayed.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Ext4Error> {
        read(self.disk, offset, buf)?;
        if self.replacements.is_empty() || buf.is_empty() {
            return Ok(());
        }
        let (bits, end) = (self.superblock.block_bits, offset + buf.len() as u64);
        for block in offset >> bits..=(end - 1) >> bits {
            let Some(replacement) = self.replacements.get(&block) else { continue };
            let mut content = vec![0; self.block_size() as usize];
            read(self.disk, replacement.physical() << bits, &mut content)?;
            if let Some(start) = content.first_chunk_mut() {
                replacement.restore(start);
            }
            let (from, to) = ((block << bits).max(offset), ((block + 1) << bits).min(end));
            let inside = (from & (self.block_size() - 1)) as usize;
            let part = &mut buf[(from - offset) as usize..(to - offset) as usize];
            part.copy_from_slice(&content[inside..inside + part.len()]);
        }
        Ok(())
    }
}

fn read<D: ReadAt + ?Sized>(disk: &D, offset: u64, buf: &mut [u8]) -> Result<(), Ext4Error> {
    let length = buf.len();
    disk.read_at(offset, buf).map_err(|source| Ext4Error::Read { offset, length, source })
}

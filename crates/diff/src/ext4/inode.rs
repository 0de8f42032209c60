//! Inodes: the attributes of a file, without its name and content.

use std::sync::Arc;

use super::le::{joined, u16_at, u32_at};

const FLAG_EXTENTS: u32 = 0x80000;

/// The size of an inode's block field. A shorter symbolic link's target is stored in it.
const BLOCK_BYTES: usize = 60;

/// The length of the fields that every inode has. Longer records contain the length of the rest.
const BASE_LENGTH: usize = 128;

/// A file's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    File,
    Directory,
    Symlink,
    CharacterDevice,
    BlockDevice,
    Pipe,
    Socket,
}

/// A view of one record in a cached piece of an inode table.
#[derive(Clone, Debug)]
pub struct Inode {
    number: u32,
    kind: Kind,
    piece: Arc<[u8]>,
    start: usize,
    length: usize,
    size: u64,
}

impl Inode {
    /// `None` if the inode is not in use.
    pub(super) fn parse(
        number: u32,
        piece: Arc<[u8]>,
        start: usize,
        length: usize,
        large_directories: bool,
    ) -> Option<Self> {
        let record = piece.get(start..start + length)?;
        let links = u16_at(record, 0x1A);
        let kind = match u16_at(record, 0) >> 12 {
            0x1 => Kind::Pipe,
            0x2 => Kind::CharacterDevice,
            0x4 => Kind::Directory,
            0x6 => Kind::BlockDevice,
            0x8 => Kind::File,
            0xA => Kind::Symlink,
            0xC => Kind::Socket,
            _ => return None,
        };
        let has_high = match kind {
            Kind::File => true,
            Kind::Directory => large_directories,
            Kind::Symlink | Kind::CharacterDevice | Kind::BlockDevice | Kind::Pipe | Kind::Socket => false,
        };
        let size = joined(if has_high { u32_at(record, 0x6C) } else { 0 }, u32_at(record, 0x04));
        (links > 0).then_some(Self { number, kind, piece, start, length, size })
    }

    pub fn number(&self) -> u32 {
        self.number
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The length of its content in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Permissions, with the set-id and sticky bits.
    pub fn mode(&self) -> u16 {
        u16_at(self.record(), 0) & 0o7777
    }

    pub fn uid(&self) -> u32 {
        u32::from(u16_at(self.record(), 0x78)) << 16 | u32::from(u16_at(self.record(), 0x02))
    }

    pub fn gid(&self) -> u32 {
        u32::from(u16_at(self.record(), 0x7A)) << 16 | u32::from(u16_at(self.record(), 0x18))
    }

    /// The modification time of the content, as stored: seconds, and nanoseconds with the upper bits of the seconds.
    pub fn mtime(&self) -> (u32, u32) {
        (u32_at(self.record(), 0x10), self.extra_field(0x88))
    }

    /// The change time of the inode, as stored.
    pub fn ctime(&self) -> (u32, u32) {
        (u32_at(self.record(), 0x0C), self.extra_field(0x84))
    }

    /// The generation of the inode, which changes when its number is reused.
    pub fn generation(&self) -> u32 {
        u32_at(self.record(), 0x64)
    }

    /// All bytes of the record. Files with equal records are equal except for their content.
    pub(crate) fn record(&self) -> &[u8] {
        &self.piece[self.start..self.start + self.length]
    }

    /// The root of the extents, a short symbolic link, or the numbers of a device.
    pub(crate) fn block(&self) -> &[u8] {
        &self.record()[0x28..0x28 + BLOCK_BYTES]
    }

    pub(super) fn has_extents(&self) -> bool {
        u32_at(self.record(), 0x20) & FLAG_EXTENTS != 0
    }

    /// A symbolic link's target, if the inode itself holds it.
    pub(super) fn short_target(&self) -> Option<&[u8]> {
        let length = usize::try_from(self.size).ok().filter(|&size| size < BLOCK_BYTES)?;
        (self.kind == Kind::Symlink && !self.has_extents()).then(|| &self.block()[..length])
    }

    /// Extended attributes in the inode itself.
    pub(crate) fn attributes(&self) -> &[u8] {
        self.record().get(BASE_LENGTH + self.extra_length()..).unwrap_or_default()
    }

    /// The block with further extended attributes, zero if there is none.
    pub(crate) fn attribute_block(&self) -> u64 {
        joined(u16_at(self.record(), 0x76), u32_at(self.record(), 0x68))
    }

    fn extra_length(&self) -> usize {
        u16_at(self.record(), BASE_LENGTH).into()
    }

    /// A field beyond the base length; 0 if the record does not have it.
    fn extra_field(&self, at: usize) -> u32 {
        if at + 4 <= BASE_LENGTH + self.extra_length() { u32_at(self.record(), at) } else { 0 }
    }
}

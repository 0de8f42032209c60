//! Replay of the journal of a file system that was not unmounted: complete transactions replace blocks of the disk.
//!
//! ```text
//! superblock │ … │ descriptor │ data │ data │ revoke │ commit │ descriptor │ data │ commit │ (older things)
//!                  start ──▶   sequence 7               ✓       sequence 8            ✓       end: not sequence 9
//! ```
//!
//! A transaction counts if its commit block is present and intact. A revoked block is not taken from the revoking
//! transaction or an earlier one.

use std::collections::HashMap;

use super::crc32c;
use super::error::Ext4Error;
use super::extents::Extent;

const MAGIC: u32 = 0xC03B_3998;

const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const SUPERBLOCK_V1: u32 = 3;
const SUPERBLOCK_V2: u32 = 4;
const REVOKE: u32 = 5;

const BITS_64: u32 = 0x2;
const CHECKSUM_V2: u32 = 0x8;
const CHECKSUM_V3: u32 = 0x10;
const FAST_COMMIT: u32 = 0x20;
/// The supported features. Revocations and asynchronous commits make no difference to a reader.
const KNOWN: u32 = 0x1 | BITS_64 | 0x4 | CHECKSUM_V2 | CHECKSUM_V3;

const HEADER: usize = 12;
const SUPERBLOCK_LENGTH: usize = 1024;
const SUPERBLOCK_CHECKSUM: usize = 0xFC;
const COMMIT_CHECKSUM: usize = 0x10;

const TAG_ESCAPED: u32 = 0x1;
const TAG_SAME_UUID: u32 = 0x2;
const TAG_LAST: u32 = 0x8;

/// The largest journal: 4 GiB in blocks of 4 KiB. Journals are made with at most 1 GiB.
const MAX_BLOCKS: u32 = 1 << 20;

/// The most revocations that are kept: those of 4 GiB of deleted directories and extents.
const MAX_REVOKED: usize = 1 << 20;

/// The position of the newer content of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replacement {
    /// The block of the disk, inside the journal, that has the content.
    physical: u64,
    /// Whether its first bytes were zeroed, because they look like those of a journal block.
    escaped: bool,
}

impl Replacement {
    pub(super) fn physical(self) -> u64 {
        self.physical
    }

    /// Undoes the escaping of the block's first bytes.
    pub(super) fn restore(self, start: &mut [u8; 4]) {
        if self.escaped {
            *start = MAGIC.to_be_bytes();
        }
    }
}

/// Reads the journal in these extents. Returns the blocks of the disk that are replaced, with the position of their
/// content.
pub(super) fn replay<R: Fn(u64) -> Result<Vec<u8>, Ext4Error>>(
    extents: &[Extent],
    disk_blocks: u64,
    read: R,
) -> Result<HashMap<u64, Replacement>, Ext4Error> {
    match Log::open(extents, read)? {
        Some(log) => log.replacements(disk_blocks),
        None => Ok(HashMap::new()),
    }
}

struct Log<'a, R> {
    extents: &'a [Extent],
    read: R,
    features: u32,
    seed: u32,
    first: u32,
    end: u32,
    start: u32,
    sequence: u32,
}

#[derive(Debug)]
struct Tag {
    target: u64,
    flags: u32,
    checksum: u32,
    /// The position of the content in the journal.
    block: u32,
    sequence: u32,
}

#[derive(Debug, Default)]
struct Transaction {
    tags: Vec<Tag>,
    revoked: Vec<u64>,
}

impl<'a, R: Fn(u64) -> Result<Vec<u8>, Ext4Error>> Log<'a, R> {
    /// `None` if the journal is empty.
    fn open(extents: &'a [Extent], read: R) -> Result<Option<Self>, Ext4Error> {
        let wrong = |what| Ext4Error::Journal { what };
        let closed = Self { extents, read, features: 0, seed: 0, first: 0, end: 1, start: 0, sequence: 0 };
        let block = closed.block(0)?;
        let kind = u32_at(&block, 4);
        if u32_at(&block, 0) != MAGIC || ![SUPERBLOCK_V1, SUPERBLOCK_V2].contains(&kind) {
            return Err(wrong("it does not begin like one"));
        }
        if u32_at(&block, 0x0C) as usize != block.len() {
            return Err(wrong("its blocks have another size"));
        }
        let (end, first) = (u32_at(&block, 0x10), u32_at(&block, 0x14));
        if end > MAX_BLOCKS || !(1..end).contains(&first) {
            return Err(wrong("its length is impossible"));
        }
        let start = u32_at(&block, 0x1C);
        if start == 0 {
            return Ok(None);
        }
        if !(first..end).contains(&start) {
            return Err(wrong("its start is outside of it"));
        }
        let features = if kind == SUPERBLOCK_V2 { u32_at(&block, 0x28) } else { 0 };
        if features & FAST_COMMIT != 0 {
            return Err(Ext4Error::Unsupported("fast commits"));
        }
        if features & !KNOWN != 0 {
            return Err(wrong("it has features that are not known here"));
        }
        let seed = crc32c::update(!0, &block[0x30..0x40]);
        let log = Self { features, seed, first, end, start, sequence: u32_at(&block, 0x18), ..closed };
        // This checksum does not begin with the seed, because the seed is in the block itself.
        let sum = checksum_without(!0, &block[..SUPERBLOCK_LENGTH], SUPERBLOCK_CHECKSUM);
        if log.has_checksums() && sum != u32_at(&block, SUPERBLOCK_CHECKSUM) {
            return Err(wrong("its superblock is damaged"));
        }
        Ok(Some(log))
    }

    fn replacements(&self, disk_blocks: u64) -> Result<HashMap<u64, Replacement>, Ext4Error> {
        let (tags, revoked) = self.transactions()?;
        let mut latest: HashMap<u64, &Tag> = HashMap::new();
        for tag in &tags {
            let gone = revoked.get(&tag.target).is_some_and(|&by| !is_later(tag.sequence, by));
            if tag.target >= disk_blocks {
                return Err(Ext4Error::JournalBlock {
                    block: tag.block,
                    what: "it belongs outside of the disk",
                });
            }
            if !gone {
                latest.insert(tag.target, tag);
            }
        }
        let mut replacements = HashMap::with_capacity(latest.len());
        for (target, tag) in latest {
            self.verify(tag)?;
            let physical = self.physical(tag.block)?;
            replacements.insert(target, Replacement { physical, escaped: tag.flags & TAG_ESCAPED != 0 });
        }
        Ok(replacements)
    }

    /// The tags of all complete transactions in order, and the last transaction that revoked each block.
    fn transactions(&self) -> Result<(Vec<Tag>, HashMap<u64, u32>), Ext4Error> {
        let (mut tags, mut revoked) = (Vec::new(), HashMap::new());
        let mut open = Transaction::default();
        let (mut at, mut sequence, mut walked) = (self.start, self.sequence, 0);
        loop {
            let block = self.block(at)?;
            if u32_at(&block, 0) != MAGIC || u32_at(&block, 8) != sequence {
                break;
            }
            let here = at;
            let mut step = || {
                walked += 1;
                at = if at + 1 == self.end { self.first } else { at + 1 };
                at
            };
            let mut next = step();
            match u32_at(&block, 4) {
                DESCRIPTOR if self.tail_is_right(&block) => {
                    for (target, flags, checksum) in self.tags(&block) {
                        open.tags.push(Tag { target, flags, checksum, block: next, sequence });
                        next = step();
                    }
                }
                REVOKE if self.tail_is_right(&block) => {
                    self.revoked(&block, here, &mut open.revoked)?;
                    if open.revoked.len() + revoked.len() > MAX_REVOKED {
                        return Err(Ext4Error::JournalBlock {
                            block: here,
                            what: "too many blocks are revoked",
                        });
                    }
                }
                COMMIT if self.commit_is_right(&block) => {
                    let done = std::mem::take(&mut open);
                    tags.extend(done.tags);
                    revoked.extend(done.revoked.into_iter().map(|block| (block, sequence)));
                    sequence = sequence.wrapping_add(1);
                }
                // The end of the log: a transaction that a crash interrupted, or blocks from before the journal
                // wrapped.
                _ => break,
            }
            if walked > self.end {
                return Err(Ext4Error::JournalBlock { block: here, what: "it goes round in a circle" });
            }
        }
        Ok((tags, revoked))
    }

    /// The target, flags and checksum of each block that follows a descriptor.
    fn tags(&self, block: &[u8]) -> Vec<(u64, u32, u32)> {
        let (v3, wide) = (self.features & CHECKSUM_V3 != 0, self.features & BITS_64 != 0);
        let length = match (v3, self.features & CHECKSUM_V2 != 0) {
            (true, _) => 16,
            (false, with_checksum) => 8 + 4 * usize::from(wide) + 2 * usize::from(with_checksum),
        };
        let mut rest = &block[HEADER..block.len() - self.tail_length()];
        let mut tags = Vec::new();
        while let Some(tag) = rest.get(..length) {
            let high = if wide { u32_at(tag, 8) } else { 0 };
            let target = u64::from(high) << 32 | u64::from(u32_at(tag, 0));
            let (flags, checksum) = match v3 {
                true => (u32_at(tag, 4), u32_at(tag, 12)),
                false => (u32_at(tag, 4) & 0xFFFF, u32_at(tag, 4) >> 16),
            };
            tags.push((target, flags, checksum));
            // The first tag of a block is followed by the journal's identity.
            let taken = if flags & TAG_SAME_UUID == 0 { length + 16 } else { length };
            match rest.get(taken..) {
                Some(more) if flags & TAG_LAST == 0 => rest = more,
                Some(_) | None => break,
            }
        }
        tags
    }

    fn revoked(&self, block: &[u8], at: u32, revoked: &mut Vec<u64>) -> Result<(), Ext4Error> {
        let length = u32_at(block, HEADER) as usize;
        let most = block.len() - self.tail_length();
        let Some(list) = block.get(HEADER + 4..length).filter(|_| length <= most) else {
            return Err(Ext4Error::JournalBlock {
                block: at,
                what: "its list of revoked blocks does not fit",
            });
        };
        if self.features & BITS_64 != 0 {
            revoked.extend(list.as_chunks::<8>().0.iter().map(|block| u64::from_be_bytes(*block)));
        } else {
            revoked.extend(list.as_chunks::<4>().0.iter().map(|block| u64::from(u32::from_be_bytes(*block))));
        }
        Ok(())
    }

    fn has_checksums(&self) -> bool {
        self.features & (CHECKSUM_V2 | CHECKSUM_V3) != 0
    }

    fn tail_length(&self) -> usize {
        if self.has_checksums() { 4 } else { 0 }
    }

    fn tail_is_right(&self, block: &[u8]) -> bool {
        let tail = block.len() - 4;
        !self.has_checksums() || checksum_without(self.seed, block, tail) == u32_at(block, tail)
    }

    fn commit_is_right(&self, block: &[u8]) -> bool {
        let sum = || checksum_without(self.seed, block, COMMIT_CHECKSUM);
        !self.has_checksums() || sum() == u32_at(block, COMMIT_CHECKSUM)
    }

    /// Checks the content that belongs to a tag.
    fn verify(&self, tag: &Tag) -> Result<(), Ext4Error> {
        if !self.has_checksums() {
            return Ok(());
        }
        let seed = crc32c::update(self.seed, &tag.sequence.to_be_bytes());
        let sum = crc32c::update(seed, &self.block(tag.block)?);
        let expected = if self.features & CHECKSUM_V3 != 0 { sum } else { sum & 0xFFFF };
        match tag.checksum == expected {
            true => Ok(()),
            false => Err(Ext4Error::JournalBlock { block: tag.block, what: "its content is damaged" }),
        }
    }

    fn block(&self, block: u32) -> Result<Vec<u8>, Ext4Error> {
        (self.read)(self.physical(block)?)
    }

    fn physical(&self, block: u32) -> Result<u64, Ext4Error> {
        let behind = self.extents.partition_point(|extent| extent.logical <= block);
        let extent = behind.checked_sub(1).and_then(|last| self.extents.get(last));
        let inside = extent.filter(|extent| extent.written && block - extent.logical < extent.blocks);
        match inside {
            Some(extent) => Ok(extent.physical + u64::from(block - extent.logical)),
            None => Err(Ext4Error::JournalBlock { block, what: "it has no place on the disk" }),
        }
    }
}

/// Whether `a` is later than `b`. Sequence numbers wrap around.
fn is_later(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

/// The checksum of a block, with its own checksum field at `field` taken as zero.
fn checksum_without(seed: u32, block: &[u8], field: usize) -> u32 {
    let before = crc32c::update(seed, &block[..field]);
    crc32c::update(crc32c::update(before, &[0; 4]), &block[field + 4..])
}

/// A big-endian number. The file system's other numbers are little-endian.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|part| part.try_into().ok()).map_or(0, u32::from_be_bytes)
}
